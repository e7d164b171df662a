"""What the keys of ``__consumer_offsets`` begin with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

KEY_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            (
                "offset_commit_v0",
                "offset_commit",
                "group_metadata",
                "consumer_group_metadata",
                "consumer_group_partition_metadata",
                "consumer_group_member_metadata",
                "consumer_group_target_assignment_metadata",
                "consumer_group_target_assignment_member",
                "consumer_group_current_member_assignment",
                "share_group_partition_metadata",
                "share_group_member_metadata",
                "share_group_metadata",
                "share_group_target_assignment_metadata",
                "share_group_target_assignment_member",
                "share_group_current_member_assignment",
                "share_group_state_partition_metadata",
                "consumer_group_regular_expression",
                "streams_group_metadata",
                "streams_group_partition_metadata",
                "streams_group_member_metadata",
                "streams_group_target_assignment_metadata",
                "streams_group_target_assignment_member",
                "streams_group_current_member_assignment",
                "streams_group_topology",
                "streams_group_target_assignment_resolved_topic_ids",
            )
        )
    )
)
"""What a key's first int16 says of its record, as Kafka 4 names it. Consumers of every protocol commit with 1."""
