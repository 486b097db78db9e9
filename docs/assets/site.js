// What scrolls must be reachable by the keyboard, and a dialog has a name. The theme makes some of it after loading.
function name_and_reach() {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((box) => box.setAttribute("tabindex", "0"));
  document.querySelectorAll(".md-search[role=dialog]:not([aria-label])").forEach((box) => box.setAttribute("aria-label", "Search"));
}
new MutationObserver(name_and_reach).observe(document.body, { childList: true, subtree: true });
name_and_reach();
