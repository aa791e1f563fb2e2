import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { defineConfig, type Plugin } from "vite";

// licenses writes LICENSES.txt: the licence of each package with code in the built files.
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const packages = new Map<string, string>();
      for (const file of Object.values(bundle)) {
        if (file.type !== "chunk") continue;
        for (const id of Object.keys(file.modules)) {
          const at = id.lastIndexOf("/node_modules/");
          if (at < 0) continue;
          let folder = dirname(id.split("?")[0]!);
          while (!existsSync(join(folder, "package.json")) || !JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version) {
            folder = dirname(folder);
          }
          const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
          const licence = readdirSync(folder).sort().find((name) => /^licen[cs]e/i.test(name));
          const text = licence ? readFileSync(join(folder, licence), "utf8").replaceAll("\r\n", "\n").trim() : "";
          packages.set(`${about.name} ${about.version}`, `${about.license}\n\n${text}`.trim());
        }
      }
      const source = [...packages.keys()].sort().map((name) => `${name}: ${packages.get(name)}\n`).join(`\n${"-".repeat(80)}\n\n`);
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: `The console contains these packages.\n\n${source}` });
    },
  };
}

// locales leaves out the texts of react-aria in languages that the console does not have.
function locales(): Plugin {
  return {
    name: "locales",
    enforce: "pre",
    load(id) {
      const match = /react-(?:aria|stately|aria-components)\/dist\/.*\/([a-z]{2}-[A-Z]{2})\.m?js$/.exec(id);
      return match && !["en-US", "de-DE"].includes(match[1]!) ? "export default {};" : null;
    },
  };
}

export default defineConfig({
  base: "/-/console/",
  plugins: [locales(), licenses()],
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    target: "es2023",
    cssTarget: "chrome130",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    rolldownOptions: { onLog: (level, log, next) => log.code !== "MODULE_LEVEL_DIRECTIVE" && next(level, log) },
  },
  server: { proxy: { "^/(?!-/console/(?!session))": process.env.API ?? "http://localhost:8080" } },
});
