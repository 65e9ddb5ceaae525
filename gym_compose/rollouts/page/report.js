"use strict";
// Everything of a rollout is put on the page as text: no markup in it is ever read.
(() => {
  const rollouts = JSON.parse(document.getElementById("rollouts").textContent);
  const list = document.getElementById("list");
  const shown = document.getElementById("shown");
  const found = document.getElementById("found");
  const find = document.getElementById("find");

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const outcome = (rollout) => {
    if (rollout.failure !== null) return rollout.failure;
    if (rollout.masked) return "masked";
    return rollout.reward === null ? "no reward" : "reward " + Number(rollout.reward.toFixed(4));
  };
  const tone = (rollout) => (rollout.failure !== null ? "bad" : rollout.reward > 0 && !rollout.masked ? "good" : "muted");
  const name = (rollout) => "task " + rollout.task + ", rollout " + rollout.rollout;
  const searched = rollouts.map((rollout) =>
    [name(rollout), outcome(rollout), rollout.message || "", rollout.fields, ...rollout.steps.map((step) => step.title + " " + step.text)].join("\n").toLowerCase());

  const step = (kind, title, text, code) => {
    const made = element("section", undefined, "step " + kind.replace(" ", "-") + (code ? " code" : ""));
    made.append(element("h3", title ? kind + ": " + title : kind), element("pre", text));
    return made;
  };
  const show = (number) => {
    const rollout = rollouts[number];
    shown.replaceChildren();
    const head = element("h3", name(rollout) + ": ");
    head.append(element("span", outcome(rollout), tone(rollout)));
    shown.append(head);
    if (rollout.message !== null) shown.append(step("failure", "", rollout.message, false));
    for (const item of rollout.steps) shown.append(step(item.kind, item.title, item.text, item.kind.startsWith("tool") || item.kind === "other"));
    const rest = element("details");
    rest.append(element("summary", "Other fields of the record"), step("fields", "", rollout.fields, true));
    shown.append(rest);
    for (const button of list.querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.number === String(number)));
  };
  const fill = () => {
    const wanted = find.value.trim().toLowerCase();
    list.replaceChildren();
    let first = null;
    rollouts.forEach((rollout, number) => {
      if (wanted && !searched[number].includes(wanted)) return;
      const button = element("button", name(rollout));
      button.type = "button";
      button.dataset.number = String(number);
      button.append(element("span", outcome(rollout), tone(rollout)));
      button.addEventListener("click", () => { show(number); shown.focus({ preventScroll: true }); });
      const entry = element("li");
      entry.append(button);
      list.append(entry);
      if (first === null) first = number;
    });
    found.textContent = list.childElementCount + " of " + rollouts.length;
    if (first === null) shown.replaceChildren(element("p", "None has that text.", "muted"));
    else show(first);
  };
  find.addEventListener("input", fill);
  if (rollouts.length) fill();
  else found.textContent = "none";
})();
