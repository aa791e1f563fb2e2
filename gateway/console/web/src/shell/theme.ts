import { useEffect } from "react";
import { useQuery } from "@tanstack/react-query";
import { api, json } from "../api/client";
import { applyScheme } from "./scheme";

// properties are the style sheet's colours that a member of the operator's theme replaces.
const properties: Record<string, string> = {
  link_color: "--accent", main_bg: "--page", panel_bg: "--panel", text_color: "--text", panel_alt_bg: "--hover", nav_bg: "--top", side_nav_bg: "--side",
};

// useSiteName returns the name of the installation.
export function useSiteName(): string {
  return useTheme()?.site_name ?? "Ironplane";
}

function useTheme() {
  return useQuery({ queryKey: ["theme"], queryFn: () => json(api.GET("/system/theme/customize")), staleTime: 60_000 }).data;
}

// useClientTheme shows a client the operator's colours. They are made for light pages.
export function useClientTheme(isClient: boolean): void {
  const theme = useTheme()?.theme;
  useEffect(() => {
    const chosen = Object.entries(isClient ? (theme ?? {}) : {}).filter(([name]) => properties[name]);
    if (chosen.length === 0) return;
    const { style } = document.documentElement;
    style.colorScheme = "light";
    for (const [name, colour] of chosen) style.setProperty(properties[name]!, String(colour));
    return () => {
      for (const [name] of chosen) style.removeProperty(properties[name]!);
      applyScheme();
    };
  }, [theme, isClient]);
}
