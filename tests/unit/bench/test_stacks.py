"""What py-spy has seen is read, put into stages and drawn without a word of the machine that it was seen on."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench import stacks
from bench.stacks import Stack

_ROOT = "/home/someone/bridge"
_PARENTS = 'process 7:"/usr/bin/python -m bench.meter report.json";process 8:"/usr/bin/python -m spark.job";'
_RAW = f"""\
{_PARENTS}process 9:"python";thread (0x7F): MainThread;main (/usr/lib/python3.11/site-packages/pyspark/daemon.py:12);\
publish ({_ROOT}/bridge/lane_publisher.py:5);run (<string>:3) 30
{_PARENTS}process 9:"python";thread (11);_run (threading.py:982);read (cassandra/io/reactor.py:7) 10
{_PARENTS}thread (8): MainThread;<module> (job.py:1) 60
"""


def _stacks() -> list[Stack]:
    return stacks.parse(_RAW, _ROOT)


def test_stacks_are_read_without_paths_and_lines() -> None:
    """The innermost process is whose stack it is; files begin at their package, wherever that is installed."""
    assert _stacks() == [
        Stack(
            9,
            "MainThread",
            ("main (pyspark/daemon.py)", "publish (bridge/lane_publisher.py)", "run (<string>)"),
            30,
        ),
        Stack(9, "", ("_run (threading.py)", "read (cassandra/io/reactor.py)"), 10),
        Stack(8, "MainThread", ("<module> (job.py)",), 60),
    ]


def test_waiting_is_told_from_work() -> None:
    """A thread that waits for another has a lock's frame innermost."""
    assert [one.waits for one in _stacks()] == [False] * 3
    assert Stack(9, "", ("run (threading.py)", "Condition.wait (threading.py)"), 3).waits


def test_a_stack_of_nobody_is_refused() -> None:
    """Without subprocesses nobody could say which process was seen."""
    with pytest.raises(ValueError, match="--subprocesses"):
        stacks.parse("main (job.py:1) 5", _ROOT)


def test_a_stack_is_of_its_innermost_known_frames_stage() -> None:
    """What a stage calls is its own, until something that another stage names; the shares are of all samples."""
    stages = [
        ("publishing", lambda frame: "lane_publisher" in frame),
        ("encoding", lambda frame: "<string>" in frame),
        ("receiving", lambda frame: "cassandra/" in frame),
    ]
    assert stacks.by_stage(_stacks(), stages, "other") == {"other": 0.6, "encoding": 0.3, "receiving": 0.1}
    assert stacks.by_stage(_stacks()[:1], stages[:1], "other") == {"publishing": 1.0}


def test_a_flame_graph_is_as_wide_as_what_was_seen() -> None:
    """Each frame is a box: over its caller, as wide as its samples; other processes are left out, and so are paths."""
    merged = stacks.merged(_stacks(), {9: "workers", 8: ""})
    drawn = stacks.flame_graph(merged, "a <title>")
    assert "/home" not in drawn
    assert "/usr" not in drawn
    tree = ET.fromstring(drawn)
    boxes = {}
    for group in tree.findall("{*}g"):
        title, box = group.find("{*}title"), group.find("{*}rect")
        assert title is not None
        assert title.text
        assert box is not None
        boxes[title.text] = (float(box.attrib["width"]), int(box.attrib["y"]))
    assert boxes["workers: 100.0 %"][0] == 1200
    assert boxes["MainThread: 75.0 %"][0] == boxes["run (<string>): 75.0 %"][0] == 900
    assert boxes["read (cassandra/io/reactor.py): 25.0 %"][0] == 300
    assert (
        boxes["run (<string>): 75.0 %"][1] < boxes["main (pyspark/daemon.py): 75.0 %"][1] < boxes["workers: 100.0 %"][1]
    )
