// The page without its page: a network that reads digits, and is taught.
const SIDE = 28, PIXELS = SIDE * SIDE;
const INNER = 20; // a digit's longer side, as in the images that the network knows

/** A drawing (bytes, 255 where there is ink) as the network wants it: cut out, made smaller, and
 * its centre of mass in the middle. Null where nothing is drawn. */
export function cut(drawing, width, height) {
  let left = width, right = -1, top = height, bottom = -1;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (drawing[y * width + x] > 0) {
        left = Math.min(left, x); right = Math.max(right, x);
        top = Math.min(top, y); bottom = Math.max(bottom, y);
      }
    }
  }
  if (right < 0) return null;
  const scale = INNER / Math.max(right - left + 1, bottom - top + 1);
  const small = new Float64Array(PIXELS);
  let mass = 0, atX = 0, atY = 0;
  // each pixel's ink goes to the four that it lies between
  const put = (x, y, ink, into) => {
    const x0 = Math.floor(x), y0 = Math.floor(y);
    for (const [i, j] of [[0, 0], [1, 0], [0, 1], [1, 1]]) {
      const share = (1 - Math.abs(x - x0 - i)) * (1 - Math.abs(y - y0 - j));
      const column = x0 + i, row = y0 + j;
      if (share > 0 && column >= 0 && column < SIDE && row >= 0 && row < SIDE) {
        into[row * SIDE + column] += ink * share;
      }
    }
  };
  const inks = [];
  for (let y = top; y <= bottom; y++) {
    for (let x = left; x <= right; x++) {
      const ink = drawing[y * width + x] * scale * scale;
      const u = (x - left + 0.5) * scale - 0.5, v = (y - top + 0.5) * scale - 0.5;
      inks.push([u, v, ink]);
      mass += ink; atX += ink * u; atY += ink * v;
    }
  }
  const middle = (SIDE - 1) / 2;
  for (const [u, v, ink] of inks) put(u - atX / mass + middle, v - atY / mass + middle, ink, small);
  return Uint8Array.from(small, (ink) => Math.min(255, Math.round(ink)));
}

export class Pupil {
  /** `reader`, `trainer`: models; `replay`: the bytes of replay.bin. */
  static async create(reader, trainer, replay) {
    const pupil = new Pupil();
    pupil.reader = await reader.create();
    pupil.trainer = await trainer.create();
    pupil.replay = replay;
    // the reader's inputs behind the image: weights['layers.0.weight'], ...
    pupil.weights = reader.inputs.slice(1).map(({ name }) => [name, name.slice(9, -2)]);
    pupil.rows = trainer.inputs[0].shape[0];
    pupil.next = 0;
    return pupil;
  }

  /** How probable each digit is. */
  read(image) {
    const weights = this.weights.map(([name, state]) => [name, this.trainer.read(state)]);
    return this.reader.run({ image, ...Object.fromEntries(weights) }).result.data;
  }

  /** Trains on an image and known ones, half of each; the losses. */
  teach(image, digit, steps = 10) {
    const losses = [], stride = PIXELS + 1, known = this.replay.length / stride;
    for (let step = 0; step < steps; step++) {
      const images = new Uint8Array(this.rows * PIXELS), digits = new BigInt64Array(this.rows);
      for (let row = 0; row < this.rows; row++) {
        const at = (this.next % known) * stride, drawn = row % 2 === 0;
        images.set(drawn ? image : this.replay.subarray(at, at + PIXELS), row * PIXELS);
        digits[row] = BigInt(drawn ? digit : this.replay[at + PIXELS]);
        this.next += drawn ? 0 : 1;
      }
      losses.push(this.trainer.step({ image: images, digit: digits }).result.data[0]);
    }
    return losses;
  }
}
