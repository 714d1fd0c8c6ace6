// Reloads the page every two seconds. If the job does not answer, the page says how old it is.
(() => {
  const lastAnswer = { at: Date.now() };
  const gone = document.getElementById("gone");
  async function reload() {
    try {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const open = new Map([...document.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
      const main = page.querySelector("main");
      for (const one of main.querySelectorAll("details[id]")) {
        if (open.has(one.id)) one.open = open.get(one.id);
      }
      const left = [...document.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
      document.querySelector("main").replaceWith(main);
      main.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = left[at] || 0; });
      document.title = page.title;
      lastAnswer.at = Date.now();
      document.body.classList.remove("gone");
    } catch {
      const age = Math.round((Date.now() - lastAnswer.at) / 1000);
      gone.textContent = `The job does not answer. This page is ${age} s old.`;
      document.title = "no answer";
      document.body.classList.add("gone");
    }
    setTimeout(reload, 2000);
  }
  setTimeout(reload, 2000);
})();
