// The colour scheme is the system's, unless the reader chose one. The style sheet's colours follow the property color-scheme.

export function scheme(): string {
  return localStorage.getItem("ironplane-scheme") ?? "light dark";
}

export function applyScheme(): void {
  document.documentElement.style.colorScheme = scheme();
}

export function chooseScheme(name: string): void {
  localStorage.setItem("ironplane-scheme", name);
  applyScheme();
}
