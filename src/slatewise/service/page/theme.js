/* Light, dark, or as the system says; runs before the page is painted. */

(() => {
  const NAME = "slatewise.theme";
  const NEXT = { system: "light", light: "dark", dark: "system" };
  const WORDS = { system: "as the system", light: "light", dark: "dark" };

  function stored() {
    try {
      return localStorage.getItem(NAME) in NEXT ? localStorage.getItem(NAME) : "system";
    } catch {
      return "system";
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-label", `Theme: ${WORDS[theme]}. Change to ${WORDS[NEXT[theme]]}`);
    if (button) button.title = `Theme: ${WORDS[theme]}`;
  }

  apply(stored());
  addEventListener("storage", (event) => event.key === NAME && apply(stored()));
  document.addEventListener("DOMContentLoaded", () => {
    apply(stored());
    document.getElementById("theme").addEventListener("click", () => {
      const theme = NEXT[document.documentElement.dataset.theme];
      try {
        localStorage.setItem(NAME, theme);
      } catch {
        /* A browser without storage forgets the choice with the page. */
      }
      apply(theme);
    });
  });
})();
