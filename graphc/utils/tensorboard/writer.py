"""torch.utils.tensorboard.writer: event files for TensorBoard."""

from __future__ import annotations

import atexit
import datetime
import functools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from . import summary
from ._convert_np import make_np
from ._embedding import get_embedding_info, make_mat, make_sprite, make_tsv, write_pbtxt
from ._onnx_graph import load_onnx_graph
from ._pytorch_graph import graph
from ._utils import figure_to_image
from .packages import Event, SessionLog, TaggedRunMetadata, event_file

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes messages to an event file of its own in a folder, from a thread of its own."""

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        self._new = functools.partial(
            event_file, str(log_dir), max_queue, flush_secs, filename_suffix
        )
        self._open()

    def _open(self) -> None:
        self.event_writer = self._new()
        self._closed = False
        atexit.register(self.event_writer.close)  # which writes what still waits

    def get_logdir(self) -> str:
        """The folder."""
        found: str = self.event_writer.get_logdir()
        return found

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Write an Event, of this step and time (now)."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write a Summary."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: Sequence[Any], walltime: float | None = None) -> None:
        """Write a pair of GraphDef and RunMetadata."""
        definition, metadata = graph_profile
        self.add_onnx_graph(definition, walltime)
        tagged = TaggedRunMetadata(tag="step1", run_metadata=metadata.SerializeToString())
        self.add_event(Event(tagged_run_metadata=tagged), None, walltime)

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        """Write a GraphDef."""
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)

    def flush(self) -> None:
        """Write what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._closed = True
        atexit.unregister(self.event_writer.close)
        self.event_writer.close()

    def reopen(self) -> None:
        """After close(): go on in another file."""
        if self._closed:
            self._open()


class SummaryWriter:
    """Writes what a program says of its run, for TensorBoard to show (torch.utils.tensorboard).

    `log_dir`: the folder; runs/DATE_HOST + `comment` if it is not given. Events from step
    `purge_step` on, of a run that crashed, are hidden. Tags, steps and times are as in torch.
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._embeddings: list[str] = []
        self._get_file_writer()
        above = [1e-12]
        while above[-1] * 1.1 < 1e20:
            above.append(above[-1] * 1.1)
        self.default_bins = [-limit for limit in reversed(above)] + [0] + above

    def _get_file_writer(self) -> FileWriter:
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._file(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Event(step=step, file_version="brain.Event:2"))
                start = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=step, session_log=start))
        return self.file_writer

    def _file(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, made: Any, global_step: Any = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(made, global_step, walltime)

    def get_logdir(self) -> Any:
        """The folder."""
        return self.log_dir

    # --- numbers -----------------------------------------------------------------------------

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None, run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters and what came of them, as a run of their own in a folder below."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = self._get_file_writer().get_logdir()
        with SummaryWriter(os.path.join(folder, run_name or str(time.time()))) as writer:
            for each in made:
                writer._add(each, global_step)
            for tag, value in metric_dict.items():
                writer.add_scalar(tag, value, global_step)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:
        """A number."""
        made = summary.scalar(
            tag, scalar_value, new_style=new_style, double_precision=double_precision
        )
        self._add(made, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Numbers of one chart: each is a run of its own, in a folder below."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            place = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if place not in self.all_writers:
                self.all_writers[place] = self._file(place)
            made = summary.scalar(main_tag, value)
            self.all_writers[place].add_summary(made, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """A whole Tensor."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:
        """How values are distributed; `bins` as numpy.histogram takes them."""
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summary.histogram(tag, values, limits, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float,
        bucket_limits: Any, bucket_counts: Any, global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram whose upper limits and counts are known. Raises ValueError where there are
        not as many of both."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(made, global_step, walltime)

    # --- pictures, sound, texts --------------------------------------------------------------

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture of bytes, or of floats from 0 to 1."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Pictures in a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """A picture with boxes [N, 4] on it: left, top, right, bottom."""
        if isinstance(labels, str):
            labels = [labels]
        if labels is not None and len(labels) != box_tensor.shape[0]:
            labels = None
        made = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(made, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """matplotlib's figure, or a list of such."""
        pixels = figure_to_image(figure, close)
        dims = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, pixels, global_step, walltime, dims)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Clips [N, T, C, H, W] side by side; needs the moviepy package."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound [1, L] of values from -1 to 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """A text, shown as Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    # --- graphs, embeddings, curves, meshes --------------------------------------------------

    def add_onnx_graph(self, prototxt: Any) -> None:
        """The graph of an ONNX file."""
        self._get_file_writer().add_onnx_graph(load_onnx_graph(prototxt))

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """What a Module computes of these arguments, in evaluation mode."""
        self._get_file_writer().add_graph(graph(model, input_to_model, verbose, use_strict_trace))

    @staticmethod
    def _encode(rawstr: str) -> str:
        """A tag as the name of a folder."""
        return rawstr.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: Any = None,
        tag: str = "default", metadata_header: Any = None,
    ) -> None:
        """Points [N, D] for the projector, with N labels (or rows under a header) and N images
        [C, H, W]. Raises AssertionError where numbers or dims do not fit."""
        points = make_np(mat)
        step = 0 if global_step is None else int(global_step)
        for name, given in (("labels", metadata), ("images", label_img)):
            if given is not None and len(given) != len(points):
                raise AssertionError(f"#{name} should equal with #data points")
        if points.ndim != 2:
            raise AssertionError(
                "mat should be 2D, where mat.size(0) is the number of data points"
            )
        folder = self._get_file_writer().get_logdir()
        below = f"{str(step).zfill(5)}/{self._encode(tag)}"
        place = os.path.join(folder, below)
        if os.path.isdir(place):
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        os.makedirs(place, exist_ok=True)
        if metadata is not None:
            make_tsv(metadata, place, metadata_header)
        if label_img is not None:
            make_sprite(label_img, place)
        make_mat(points, place)
        self._embeddings.append(get_embedding_info(metadata, label_img, below, step, tag))
        write_pbtxt(folder, "\n".join(self._embeddings))

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: Any = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:
        """Precision and recall of predictions from 0 to 1, at each threshold."""
        made = summary.pr_curve(
            tag, make_np(labels), make_np(predictions), num_thresholds, weights
        )
        self._add(made, global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any,
        true_negative_counts: Any, false_negative_counts: Any, precision: Any, recall: Any,
        global_step: Any = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve that is known."""
        made = summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts,
            false_negative_counts, precision, recall, num_thresholds, weights,
        )
        self._add(made, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Scalars of these tags share a chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A scalar between its two bounds: three tags."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Which scalars share a chart: {category: {title: ["Multiline" or "Margin", tags]}}."""
        self._add(summary.custom_scalars(layout))

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
        config_dict: Any = None, global_step: Any = None, walltime: float | None = None,
    ) -> None:
        """Points [B, N, 3], with colours and triangles of the same form."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    # --- life --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what waits."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what waits, and close the files; what is added later goes to another one."""
        writers, self.file_writer, self.all_writers = self.all_writers, None, None
        for writer in (writers or {}).values():
            writer.flush()
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
