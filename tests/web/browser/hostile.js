// Tries everything by which a page of one origin reaches for another one. Gives what it could read: nothing, if all is well.
"use strict";

async function attack({ target, job, strike }) {
  const read = [], changing = [`/api/v1/jobs/${job}/cancel`, "/api/v1/queues/q:default/pause", "/account", "/note",
    "/api/v1/tokens", "/api/v1/sign-out", "/api/v1/sign-in", "/v1/run"];
  const looking = ["/api/v1/me", `/api/v1/jobs/${job}`, "/api/v1/jobs", "/sign-in", "/account", "/note", "/metrics"];
  const got = (how, what) => { if (what) read.push(`${how}: ${String(what).slice(0, 2000)}`); };
  const soon = (work) => Promise.race([work, new Promise((done) => setTimeout(done, 1500))]);
  const once = (thing, ...names) =>
    soon(new Promise((done) => names.forEach((name) => thing.addEventListener(name, () => done(name)))));
  const put = (tag, about) => document.body.appendChild(Object.assign(document.createElement(tag), about));
  const kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json", ""];

  for (const path of looking) {
    for (const credentials of ["include", "omit"]) {
      for (const mode of ["cors", "no-cors"]) {
        await fetch(target + path, { credentials, mode }).then((a) => a.text()).then((text) => got(path, text), () => {});
      }
    }
  }
  for (const path of changing) {
    for (const kind of kinds) {
      for (const mode of ["cors", "no-cors"]) {
        const headers = kind && !(mode === "no-cors" && kind === "application/json") ? { "content-type": kind } : {};
        await fetch(target + path, { method: "POST", credentials: "include", mode, headers, body: "{}" })
          .then((a) => a.text()).then((text) => got(path, text), () => {});
      }
    }
    for (const method of ["PUT", "DELETE", "PATCH"]) {
      await fetch(target + path, { method, credentials: "include", headers: { "x-csrf-token": "guess", "if-match": "*" } })
        .then((a) => a.text()).then((text) => got(path, text), () => {});
    }
    navigator.sendBeacon(target + path, new Blob(["{}"], { type: "text/plain" }));
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      const frame = put("iframe", { name: `f${Math.random()}` });
      const form = put("form", { method: "post", action: target + path, target: frame.name, enctype });
      form.appendChild(Object.assign(document.createElement("input"), { name: '{"reason": "', value: '"}' }));
      const loaded = once(frame, "load");
      form.submit();
      await loaded;
      try { got("form in a frame", frame.contentDocument && frame.contentDocument.body.innerText); } catch { /* theirs */ }
    }
  }
  for (const path of looking) {
    for (const [tag, attribute] of [["iframe", "src"], ["object", "data"], ["embed", "src"]]) {
      const shown = put(tag, { [attribute]: target + path });
      await once(shown, "load", "error");
      try { got(tag, shown.contentDocument && shown.contentDocument.body.innerText); } catch { /* theirs */ }
      try { got(tag, shown.contentWindow && shown.contentWindow.frames.length > 5 && "frames"); } catch { /* theirs */ }
    }
    for (const [tag, attribute] of [["script", "src"], ["img", "src"], ["video", "src"]]) {
      const shown = put(tag, { [attribute]: target + path });
      if ((await once(shown, "load", "error", "loadedmetadata")) === "load") got(tag, `${path} loaded`);
    }
    const style = put("link", { rel: "stylesheet", href: target + path });
    await once(style, "load", "error");
    try { got("style", style.sheet && style.sheet.cssRules.length && "rules"); } catch { /* theirs */ }
  }
  for (const path of ["/sign-in/sign-in.js", "/sign-in/sign-in.css"]) {
    const shown = put("script", { src: target + path });
    if ((await once(shown, "load", "error")) === "load") got("script", `${path} loaded`);
  }
  const stream = new EventSource(`${target}/note`, { withCredentials: true });
  stream.onmessage = (event) => got("stream", event.data);
  const socket = new WebSocket(`${target.replace("http", "ws")}/socket`);
  socket.onmessage = (event) => got("socket", event.data);
  await Promise.all([once(stream, "error"), once(socket, "close", "error")]);
  for (const path of looking) {
    const other = window.open(target + path);
    await soon(new Promise((done) => setTimeout(done, 300)));
    try { got("window", other && other.document && other.document.body.innerText); } catch { /* theirs */ }
    if (other) other.close();
  }
  document.cookie = `mainspring=${"x".repeat(43)}; path=/`;
  document.cookie = `mainspring=${"x".repeat(43)}; path=/api/v1`;
  if (strike) { // the whole window goes there
    const form = put("form", { method: "post", action: target + strike, enctype: "text/plain" });
    form.appendChild(Object.assign(document.createElement("input"), { name: '{"reason": "', value: '"}' }));
    setTimeout(() => form.submit(), 0);
  }
  return read;
}
