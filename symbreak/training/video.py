"""A film of one episode: the environment, and beside it which expert acts and what the gate says, step by step.

The panel is drawn once for the whole episode. A frame shows it up to its own step; what comes later is veiled, so a
film of a thousand steps costs one figure and some arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from symbreak.errors import InputError, StorageFault
from symbreak.training.evaluate import Episode, Trained, show_episode

HEIGHT, PANEL = 480, 560  # pixels
INK, FAINT, EQUIVARIANT, FREE = "#2b2f38", "#9aa0a8", "#2f6fd0", "#e07b28"
MOST_GIF_FRAMES = 300  # of a GIF, which keeps every frame whole
LONGEST_SIDE = 4 * HEIGHT


def check_target(path: Path) -> None:
    """Refuse a film that could not be written, before an episode is played for it."""
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise InputError(f"--video {path}: the name must end in .mp4 or .gif")
    if path.suffix.lower() == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise InputError(f"--video {path}: .mp4 needs imageio-ffmpeg; pip install it, or write a .gif") from None


def record_episode(trained: Trained, path: Path, seed: int = 0, random: float = 0.0) -> Episode:
    """Play one greedy episode, but for a share of `random` moves, and write its film."""
    check_target(path)
    pictures: list[np.ndarray] = []
    episode, fps = show_episode(trained, seed, lambda picture: pictures.append(_scaled(picture)), random)
    title = f"{trained.config.method} on {trained.config.task}, step {trained.step:,}"
    _write(path, list(frames(pictures, episode, title, trained.gated)), fps)
    return episode


def frames(pictures: list[np.ndarray], episode: Episode, title: str, gated: bool) -> Iterator[np.ndarray]:
    """Every picture with the panel beside it."""
    panel, left, right = _panel(episode, gated)
    count = len(pictures)
    total = np.cumsum([0.0, *episode.rewards])
    for step, picture in enumerate(pictures):
        shown = panel.copy()
        # The bar of this step ends here; the axis runs from the first bar's left edge to the last one's right.
        now = round(left + (right - left) * (step + 1) / count)
        later = shown[:, now : right + 2]
        shown[:, now : right + 2] = 255 - (255 - later) // 6
        drawn = Image.fromarray(shown)
        pen = ImageDraw.Draw(drawn)
        pen.line([(now, 150), (now, HEIGHT - 62)], fill=INK, width=2)
        pen.text((24, 18), title, fill=INK, font=_font(19))
        pen.text((24, 50), f"step {step + 1} of {count}", fill=INK, font=_font(16))
        pen.text((200, 50), f"return {total[step + 1]:.2f}", fill=INK, font=_font(16))
        if gated:
            free = episode.gates[step] > 0.5
            name = "free expert acts" if free else "equivariant expert acts"
            pen.rectangle((24, 86, 42, 104), fill=FREE if free else EQUIVARIANT)
            pen.text((52, 84), name, fill=INK, font=_font(16))
            pen.text((290, 84), f"gate {episode.probabilities[step]:.2f}", fill=INK, font=_font(16))
        frame = np.concatenate([picture, np.asarray(drawn)], axis=1)
        yield frame[:, : frame.shape[1] // 2 * 2]  # films have even sides


def _panel(episode: Episode, gated: bool) -> tuple[np.ndarray, int, int]:
    """The panel of the whole episode, and the columns at which its axis of steps begins and ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(episode.rewards)
    steps = np.arange(count)
    figure = Figure(figsize=(PANEL / 100, HEIGHT / 100), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    place = (0.13, 0.145, 0.82, 0.51) if gated else (0.13, 0.145, 0.82, 0.54)
    axes = figure.add_axes(place)
    axes.set_xlim(-0.5, count - 0.5)
    if gated:
        who = figure.add_axes((0.13, 0.665, 0.82, 0.025))
        who.imshow(np.array([_rgb(FREE if gate > 0.5 else EQUIVARIANT) for gate in episode.gates])[None], aspect="auto")
        who.set_axis_off()
        axes.step(steps, episode.probabilities, where="mid", color=INK, lw=1.6)
        axes.fill_between(steps, episode.probabilities, step="mid", color=FREE, alpha=0.25, lw=0)
        axes.axhline(0.5, color=FAINT, lw=1, ls="--")
        axes.set_ylim(0, 1)
        axes.set_ylabel("gate's probability of breaking", color=INK, fontsize=10)
    else:
        axes.plot(steps, np.cumsum(episode.rewards), color=EQUIVARIANT, lw=1.8)
        axes.set_ylabel("return so far", color=INK, fontsize=10)
    axes.set_xlabel("step", color=INK, fontsize=10)
    axes.tick_params(colors=INK, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return picture, round(place[0] * PANEL), round((place[0] + place[2]) * PANEL)


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """The font of matplotlib, which is installed with it."""
    from matplotlib import font_manager

    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)


def _scaled(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    size = (min(LONGEST_SIDE, max(1, round(width * HEIGHT / height))), HEIGHT)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _write(path: Path, film: list[np.ndarray], fps: float) -> None:
    import imageio.v3 as imageio

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".mp4":
            with warnings.catch_warnings():
                # The encoder is another program; JAX warns of every process that is started beside its threads.
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                imageio.imwrite(path, np.stack(film), plugin="FFMPEG", fps=fps, codec="libx264", macro_block_size=2)
        else:
            every = -(-len(film) // MOST_GIF_FRAMES)
            duration = max(20, round(1000 * every / fps))  # viewers slow down frames that are shorter
            imageio.imwrite(path, np.stack(film[::every]), plugin="pillow", duration=duration, loop=0)
    except OSError as problem:
        raise StorageFault(f"the film cannot be written to {path}: {problem}; choose another place") from problem
