"""The order of the ranks of a group, where it is not that of the world.

``new_group(ranks, sort_ranks=False)`` gives out the ranks of a group in the order of the list. In a
process set of hvd they ascend. So the parts that are sent to the ranks, and those that come from
them, change their order. The part of one rank is its chunk: some rows of a tensor, or a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class RankOrder:
    """The order of a group's ranks, given as those of the world."""

    def __init__(self, ranks: Sequence[int]) -> None:
        numbers = range(len(ranks))
        # The rank in the group at each place in the process set, and the place of each rank.
        self._ranks = sorted(numbers, key=ranks.__getitem__)
        self._places = sorted(numbers, key=self._ranks.__getitem__)
        self._is_ascending = self._ranks == list(numbers)

    def row_of_each_place(self, rows: torch.Tensor) -> torch.Tensor:
        """Orders rows for the ranks of the group as the process set does."""
        return rows if self._is_ascending else rows[self._ranks]

    def row_of_each_rank(self, rows: torch.Tensor) -> torch.Tensor:
        """Orders rows from the places of the process set as the group does."""
        return rows if self._is_ascending else rows[self._places]

    def chunk_of_each_place(
        self, tensor: torch.Tensor, lengths: list[int]
    ) -> tuple[torch.Tensor, list[int]]:
        """Does the same as for rows. Gives the lengths in the new order, too."""
        return self._reorder(tensor, lengths, self._ranks)

    def chunk_of_each_rank(
        self, tensor: torch.Tensor, lengths: list[int]
    ) -> tuple[torch.Tensor, list[int]]:
        """Does the same as for rows. Gives the lengths in the new order, too."""
        return self._reorder(tensor, lengths, self._places)

    def _reorder(
        self, tensor: torch.Tensor, lengths: list[int], order: list[int]
    ) -> tuple[torch.Tensor, list[int]]:
        if self._is_ascending:
            return tensor, lengths
        chunks = tensor.split(lengths)
        return torch.cat([chunks[one] for one in order]), [lengths[one] for one in order]
