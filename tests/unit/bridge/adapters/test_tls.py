"""Explanations of TLS errors."""

from __future__ import annotations

import pytest

from bridge.adapters.tls import explain_tls_error
from bridge.config.tls import TlsFiles

SHOWING = TlsFiles.model_validate({"client_certificate_file": "c.pem"})


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("certificate verify failed: IP address mismatch, certificate is not valid for '1.2.3.4'.", "for another host"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'a'.", "for another host"),
        ("certificate verify failed: certificate has expired (_ssl.c:1006)", "its certificate has expired; see x.tls"),
        ("certificate verify failed: unable to get local issuer certificate", "that x.tls.ca_file does not name"),
        ("certificate verify failed: self-signed certificate in certificate chain", "that x.tls.ca_file does not name"),
        ("certificate verify failed: broker certificate could not be verified", "can't be verified; see x.tls"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", "in x.tls.client_certificate_file"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "does not accept"),
        ("SSL routines::tlsv1 alert unknown ca: SSL alert number 48", "does not accept the certificate in x.tls"),
        ("ssl/tls alert bad certificate: SSL alert number 42", "does not accept the certificate in x.tls"),
        (
            "[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN] sslv3 alert certificate unknown",
            "does not accept the certificate in",
        ),
        (
            "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
            "does not speak TLS there; see x.tls.enabled",
        ),
    ],
)
def test_known_errors_are_explained(reason: str, words: str) -> None:
    """The explanation names the setting at fault and ends with the library's message."""
    found = explain_tls_error(reason, SHOWING, "x.tls")
    assert found is not None
    assert words in found
    assert "_ssl.c" not in found
    assert found.endswith(")")


def test_connection_that_breaks_off_is_no_refusal() -> None:
    """It may have any cause, so it is not explained."""
    assert explain_tls_error("EOF occurred in violation of protocol", SHOWING, "x.tls") is None
    assert explain_tls_error("Connection reset by peer", SHOWING, "x.tls") is None


def test_missing_certificate_is_distinguished_from_a_refused_one() -> None:
    """Without a certificate the advice is to set one."""
    found = explain_tls_error("alert bad certificate", TlsFiles(), "x.tls")
    assert found is not None
    assert "a client without a certificate; set x.tls.client_certificate_file" in found
