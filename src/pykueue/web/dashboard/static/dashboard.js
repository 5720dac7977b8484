// Live pages, sign-in links and the theme. Pages work without it, except that they are not live.
"use strict";

document.documentElement.classList.add("js");

// --- live pages: the server sends the content of <main> whenever it has changed ---

const indicator = document.getElementById("live");

function show(state, word) {
  if (indicator && indicator.dataset.state !== state) {
    indicator.dataset.state = state;
    indicator.querySelector(".word").textContent = word;
  }
}

// Changes `old` into `fresh` and keeps what is equal, so that focus, selection and open details stay.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  const keepsOpen = old.nodeName === "DETAILS";
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(keepsOpen && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // What a user is entering stays as it is.
  if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
  const row = old.classList.contains("state") && old.textContent !== fresh.textContent ? old.closest("tr") : null;
  morphChildren(old, fresh);
  if (row && row.dataset.key) {
    row.classList.add("changed");
    setTimeout(() => row.classList.remove("changed"), 1700);
  }
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const key = next.nodeType === Node.ELEMENT_NODE ? next.dataset.key : undefined;
    const same = key ? keyed.get(key) : undefined;
    if (same) {
      if (same !== place) old.insertBefore(same, place);
      else place = place.nextSibling;
      morph(same, next);
    } else if (key || !place || (place.nodeType === Node.ELEMENT_NODE && place.dataset.key)) {
      old.insertBefore(next, place);
    } else {
      const after = place.nextSibling;
      morph(place, next);
      place = after;
    }
  }
  while (place) {
    const after = place.nextSibling;
    place.remove();
    place = after;
  }
}

let stream = null;

function follow(path) {
  stream = new EventSource(path);
  stream.addEventListener("open", () => show("live", "Live"));
  stream.addEventListener("page", (event) => {
    // A template parses as the browser parsed the page, and runs nothing.
    const fresh = document.createElement("template");
    fresh.innerHTML = JSON.parse(event.data);
    morphChildren(document.getElementById("main"), fresh.content);
    show("live", "Live");
  });
  stream.addEventListener("end", () => {
    stream.close();
    location.assign("/sign-in?ended=1");
  });
  stream.addEventListener("denied", () => {
    stream.close();
    location.reload();
  });
  stream.addEventListener("error", () => {
    show("lost", "Not live");
    if (stream.readyState === EventSource.CLOSED) {
      // The server answered with an error: ask for the page itself, which says why.
      fetch(location.href, { method: "HEAD", headers: { Accept: "text/html" }, redirect: "manual" }).then((answer) => {
        if (answer.type === "opaqueredirect") location.reload();
        else setTimeout(() => follow(path), 5000);
      }, () => setTimeout(() => follow(path), 5000));
    }
  });
}

if (document.body.dataset.stream) {
  const path = document.body.dataset.stream;
  follow(path);
  // A page that is not seen needs no stream; browsers allow few connections to one server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (stream) stream.close();
      show("wait", "Paused");
    } else if (stream.readyState === EventSource.CLOSED) {
      follow(path);
    }
  });
}

// --- a link that signs in has its code in the fragment, which browsers do not send ---

const byCode = document.getElementById("by-code");

if (byCode && location.hash.length > 1) {
  byCode.elements.code.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  document.getElementById("by-token").hidden = true;
  byCode.hidden = false;
  byCode.submit();
}

// --- small things ---

const theme = document.getElementById("theme");
if (theme) theme.addEventListener("change", () => theme.form.submit());

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button && button.dataset.confirm && !confirm(button.dataset.confirm)) event.preventDefault();
});
