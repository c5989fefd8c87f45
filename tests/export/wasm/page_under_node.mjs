// What the page computes, without the page: prints JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const here = (name) => new URL(name, folder);
const { load: loadReader } = await import(here("reader.mjs"));
const { load: loadTrainer } = await import(here("trainer.mjs"));
const { Pupil, cut } = await import(here("pupil.mjs"));
const replay = new Uint8Array(await readFile(here("replay.bin")));
const pupil = await Pupil.create(await loadReader(), await loadTrainer(), replay);
const best = (found) => found.indexOf(Math.max(...found));
const right = () => {
  let count = 0;
  for (let at = 0; at < replay.length; at += 785) {
    count += best(pupil.read(replay.slice(at, at + 784))) === replay[at + 784];
  }
  return count * 785 / replay.length;
};
const drawing = new Uint8Array(100 * 90);
for (let y = 10; y < 70; y++) drawing.fill(255, y * 100 + 60, y * 100 + 66);
const image = cut(drawing, 100, 90);
console.log(JSON.stringify({
  image: [...image], nothing: cut(new Uint8Array(100), 10, 10), before: right(),
  read: best(pupil.read(image)), losses: pupil.teach(image, 7), taught: best(pupil.read(image)),
  after: right(),
}));
