// Signs in and out. Whatever a server says is shown as text, never as markup.
"use strict";

const said = document.getElementById("said");
const form = document.getElementById("sign-in");
const show = (id, visible) => { document.getElementById(id).hidden = !visible; };
const say = (text) => { said.textContent = text; };

async function ask(method, path, body, csrf) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (csrf) headers["x-csrf-token"] = csrf;
  const answer = await fetch(`api/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  const told = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(told.detail || "That did not work.");
  return told;
}

function welcome(me) {
  const where = me.org === null ? "all organisations" : me.org;
  say(`Signed in as ${me.name}: ${me.role}, ${where}.`);
  show("sign-in", false);
  show("oidc", false);
  show("known", true);
  document.getElementById("sign-out").onclick = () =>
    ask("POST", "sign-out", undefined, me.csrf).then(() => { say("Signed out."); begin(); }, (error) => say(error.message));
}

async function begin() {
  show("known", false);
  show("sign-in", true);
  const { ways } = await ask("GET", "sign-in");
  show("oidc", ways.includes("oidc"));
  return ways;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const typed = Object.fromEntries(new FormData(form));
  try {
    welcome(await ask("POST", "sign-in", typed));
  } catch (error) {
    say(error.message);
  }
  form.elements.password.value = "";
});

(async () => {
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname); // it is used up: nobody should find it in a history
    try {
      return welcome(await ask("POST", "sign-in/link", { code }));
    } catch (error) {
      say(error.message);
      return begin();
    }
  }
  try {
    return welcome(await ask("GET", "me"));
  } catch { /* nobody is signed in */ }
  const ways = await begin();
  if (ways.includes("proxy")) return welcome(await ask("POST", "sign-in/proxy"));
})().catch((error) => say(error.message));
