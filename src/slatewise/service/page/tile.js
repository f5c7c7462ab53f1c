/* A picture for an item that has none: its categories give the colors and the pattern, its id the arrangement. */

import { draws, hueOf, numberOf } from "./color.js";
import { svg } from "./dom.js";

const WIDTH = 160;
const HEIGHT = 90;

/** Draw the tile of an item. */
export function tile(item) {
  const seed = numberOf(item.id);
  const random = draws(seed);
  const pattern = PATTERNS[numberOf(item.categories.join() || seed) % PATTERNS.length];
  const colors = palette(item, seed);
  return svg(
    "svg",
    { class: "tile", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "xMidYMid slice", "aria-hidden": "true" },
    svg("rect", { width: WIDTH, height: HEIGHT, fill: colors.ground }),
    pattern(random, colors),
  );
}

/** One hue per category, up to three; an item with fewer gets neighbors of what it has. */
function palette(item, seed) {
  const turn = seed % Math.max(item.categories.length, 1);
  const own = [...item.categories.slice(turn), ...item.categories.slice(0, turn)].slice(0, 3).map(hueOf);
  const first = own[0] ?? seed % 360;
  const hues = [first, own[1] ?? first + 35, own[2] ?? (own[1] ?? first) - 50];
  const dark = seed % 3 === 0;
  return {
    ground: dark ? oklch(0.4, 0.09, hues[0]) : oklch(0.88, 0.06, hues[0]),
    tones: [
      oklch(dark ? 0.62 : 0.72, 0.13, hues[0]),
      oklch(dark ? 0.72 : 0.62, 0.14, hues[1]),
      oklch(dark ? 0.82 : 0.47, 0.11, hues[2]),
    ],
    light: dark ? oklch(0.9, 0.06, hues[1]) : oklch(0.97, 0.02, hues[1]),
  };
}

function oklch(lightness, chroma, hue) {
  return `oklch(${lightness} ${chroma} ${((Math.round(hue) % 360) + 360) % 360})`;
}

const PATTERNS = [dunes, rings, blocks, rays, bands, bubbles, peaks, threads];

function dunes(random, { tones, light }) {
  const sun = svg("circle", {
    cx: between(random, 30, 130),
    cy: between(random, 18, 40),
    r: between(random, 9, 17),
    fill: light,
  });
  const layers = tones.map((fill, place) => {
    const top = 42 + place * 15 + between(random, -4, 4);
    const [one, two] = [between(random, -16, 16), between(random, -16, 16)];
    const path = `M0 ${top} C40 ${top + one} 60 ${top - one} 90 ${top + two / 2} S140 ${top - two} 160 ${top} V90 H0 Z`;
    return svg("path", { d: path, fill });
  });
  return [sun, ...layers];
}

function rings(random, { tones, light }) {
  const [cx, cy] = [between(random, 30, 130), between(random, 20, 80)];
  return [92, 74, 57, 41, 26, 12].map((r, place) =>
    svg("circle", { cx, cy, r, fill: place === 5 ? light : tones[place % 3], "fill-opacity": place === 5 ? 1 : 0.85 }),
  );
}

function blocks(random, { tones, light }) {
  const fills = [...tones, light];
  const size = 30;
  const shapes = [];
  for (let x = -10; x < WIDTH; x += size) {
    for (let y = 0; y < HEIGHT; y += size) {
      const fill = fills[Math.floor(random() * 4)];
      const turn = `rotate(${90 * Math.floor(random() * 4)} ${x + size / 2} ${y + size / 2})`;
      const quarter = `M${x} ${y} h${size} a${size} ${size} 0 0 1 ${-size} ${size} z`;
      const kind = random();
      if (kind < 0.6) shapes.push(svg("path", { d: quarter, fill, transform: turn }));
      else if (kind < 0.8) shapes.push(svg("circle", { cx: x + size / 2, cy: y + size / 2, r: size / 2.6, fill }));
    }
  }
  return shapes;
}

function rays(random, { tones, light }) {
  const [x, y] = [between(random, 40, 120), between(random, 86, 104)];
  const turn = between(random, 0, 0.3);
  const wedges = Array.from({ length: 16 }, (_, place) => {
    const [from, to] = [place, place + 0.55].map((one) => turn + (one * Math.PI) / 8);
    const corner = (angle) => `${x + 220 * Math.cos(angle)} ${y - 220 * Math.sin(angle)}`;
    return svg("path", {
      d: `M${x} ${y} L${corner(from)} L${corner(to)} Z`,
      fill: tones[place % 3],
      "fill-opacity": 0.85,
    });
  });
  return [...wedges, svg("circle", { cx: x, cy: y, r: between(random, 22, 34), fill: light })];
}

function bands(random, { tones, light }) {
  const fills = [...tones, light];
  const slope = between(random, -40, 40);
  return Array.from({ length: 9 }, (_, place) => {
    const [x, width] = [place * 24 - 30 + between(random, -6, 6), between(random, 7, 19)];
    const path = `M${x} -5 h${width} l${slope} 100 h${-width} z`;
    return svg("path", { d: path, fill: fills[Math.floor(random() * 4)], "fill-opacity": 0.9 });
  });
}

function bubbles(random, { tones, light }) {
  const fills = [...tones, ...tones, light];
  return Array.from({ length: 11 }, (_, place) =>
    svg("circle", {
      cx: between(random, 0, WIDTH),
      cy: between(random, 0, HEIGHT),
      r: between(random, 8, 34) * (place > 6 ? 0.5 : 1),
      fill: fills[place % fills.length],
      "fill-opacity": 0.75,
    }),
  );
}

function peaks(random, { tones, light }) {
  const moon = svg("circle", {
    cx: between(random, 20, 140),
    cy: between(random, 14, 30),
    r: between(random, 6, 11),
    fill: light,
  });
  const ranges = tones.map((fill, place) => {
    const low = 58 + place * 13;
    const points = Array.from({ length: 7 }, (_, step) => {
      const up = step % 2 ? between(random, 16, 40) - place * 5 : 0;
      return `${step * 32 - 16 + between(random, -6, 6)},${low - up}`;
    });
    return svg("polygon", { points: `-20,95 ${points.join(" ")} 185,95`, fill });
  });
  return [moon, ...ranges];
}

function threads(random, { tones, light }) {
  const [from, to, bend] = [between(random, 15, 75), between(random, 15, 75), between(random, -70, 70)];
  return Array.from({ length: 12 }, (_, place) => {
    const shift = (place - 6) * 8;
    const path = `M-5 ${from + shift} C50 ${from + shift + bend} 110 ${to - shift - bend} 165 ${to - shift * 0.6}`;
    const stroke = place === 6 ? light : tones[place % 3];
    return svg("path", {
      d: path,
      fill: "none",
      stroke,
      "stroke-width": place === 6 ? 6 : 4,
      "stroke-linecap": "round",
    });
  });
}

function between(random, low, high) {
  return Math.round((low + random() * (high - low)) * 10) / 10;
}
