import de from "./de";

// Texts of the console are in English in the code. A language file translates them; what it lacks stays English.
const languages: Record<string, Record<string, string>> = { en: {}, de };

export const language = ((): string => {
  const chosen = localStorage.getItem("ironplane-language") ?? "en";
  return languages[chosen] ? chosen : "en";
})();

export const languageNames: Record<string, string> = { en: "English", de: "Deutsch" };

// t returns a text in the reader's language, with values in place of {name}.
export function t(text: string, values: Record<string, string | number> = {}): string {
  return (languages[language]![text] ?? text).replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export function chooseLanguage(name: string): void {
  localStorage.setItem("ironplane-language", name);
  location.reload();
}
