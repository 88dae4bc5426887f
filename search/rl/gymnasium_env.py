"""The dojo as a Gymnasium environment, so that other agents can train in it: `pip install tinygpu[rl]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tinygpu.search.rl.forest import Lesson
from tinygpu.search.rl.lesson import WORST_REWARD
from tinygpu.search.rl.situation import EDGE_WIDTH, NODE_WIDTH

Observation = dict[str, NDArray[Any]]

# An illegal action ends the episode with less than the worst candidate gives.
ILLEGAL_REWARD = WORST_REWARD - 1.0
# Figures lie within -6 and 6, what is known of problem and device hardly beyond.
_BOUND = 16.0


class CandidateEnv(gymnasium.Env[Observation, np.int64]):  # type: ignore[misc, unused-ignore]
    """One episode chooses one candidate, parameter after parameter.

    Observation: `choice`, what is known of the choice; `values`, a row for each value that can be taken, padded with
    zeros; `mask`, 1 for the rows that are legal. An action is the number of a row. `info["action_mask"]` is the mask as
    well, and `info["parameter"]` and `info["values"]` say in words what is chosen.

    The reward is 0 until the candidate is complete; then it is the logarithm of the best known time over the
    candidate's: at most 0. An action that the mask rules out ends the episode with ILLEGAL_REWARD.

    lessons      the situations that episodes are drawn from; `reset(options={"lesson": 3})` asks for one of them
    render_mode  None, or "ansi" for a line of text

    Raises ValueError where no lesson has a choice.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(self, lessons: Sequence[Lesson], render_mode: str | None = None) -> None:
        self.lessons = tuple(lesson for lesson in lessons if lesson.situation.tree.nodes)
        if not self.lessons:
            raise ValueError("there is nothing to choose: no lesson has a choice; give spaces with several points")
        self.render_mode = render_mode
        self._most = max(int(lesson.situation.tree.count.max()) for lesson in self.lessons)
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            {
                "choice": box(-_BOUND, _BOUND, (NODE_WIDTH,), np.float32),
                "values": box(-_BOUND, _BOUND, (self._most, EDGE_WIDTH), np.float32),
                "mask": box(0, 1, (self._most,), np.int8),
            }
        )
        self.action_space = gymnasium.spaces.Discrete(self._most)
        self._lesson = self.lessons[0]
        self._node = -1
        self._leaf = -1
        self._legal = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        wanted = (options or {}).get("lesson")
        number = int(self.np_random.integers(len(self.lessons))) if wanted is None else int(wanted)
        if not 0 <= number < len(self.lessons):
            raise ValueError(f"there is no lesson {number}; lessons go from 0 to {len(self.lessons) - 1}")
        self._lesson, self._node, self._leaf, self._legal = self.lessons[number], 0, -1, True
        return self._observe(), self._inform()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._node < 0:
            raise ValueError("the episode is over; call reset() before the next step")
        tree = self._lesson.situation.tree
        reward, edge = 0.0, int(tree.first[self._node]) + int(action)
        if not 0 <= int(action) < int(tree.count[self._node]):
            self._node, self._legal, reward = -1, False, ILLEGAL_REWARD
        else:
            self._node = int(tree.below[edge])
            if self._node < 0:
                self._leaf = int(tree.low[edge])
                reward = float(self._lesson.rewards[self._leaf])
        return self._observe(), reward, self._node < 0, False, self._inform()

    def action_masks(self) -> NDArray[np.bool_]:
        """(actions,) which actions are legal now."""
        return np.asarray(self._mask(), dtype=np.bool_)

    def render(self) -> str | None:
        if self.render_mode is None:
            return None
        info = self._inform()
        if "point" in info:
            return f"{self._lesson.name}: {info['point']}"
        return f"{self._lesson.name}: {info.get('parameter', 'over')} of {info.get('values', ())}"

    def _mask(self) -> NDArray[np.int8]:
        mask = np.zeros(self._most, dtype=np.int8)
        if self._node >= 0:
            mask[: int(self._lesson.situation.tree.count[self._node])] = 1
        return mask

    def _observe(self) -> Observation:
        situation = self._lesson.situation
        values = np.zeros((self._most, EDGE_WIDTH), dtype=np.float32)
        choice = np.zeros(NODE_WIDTH, dtype=np.float32)
        if self._node >= 0:
            first, count = int(situation.tree.first[self._node]), int(situation.tree.count[self._node])
            values[:count] = situation.edges[first : first + count]
            choice[:] = np.clip(situation.nodes[self._node], -_BOUND, _BOUND)
        return {"choice": choice, "values": values, "mask": self._mask()}

    def _inform(self) -> dict[str, Any]:
        tree = self._lesson.situation.tree
        info: dict[str, Any] = {"lesson": self._lesson.name, "action_mask": self._mask(), "legal": self._legal}
        if self._node >= 0:
            first, count = int(tree.first[self._node]), int(tree.count[self._node])
            parameter = int(tree.depth[self._node])
            codes = tree.codes[tree.low[first : first + count], parameter].tolist()
            info["parameter"] = tree.names[parameter]
            info["values"] = tuple(tree.values[parameter][code] for code in codes)
        elif self._leaf >= 0:
            info["point"] = tree.point(self._leaf)
        return info
