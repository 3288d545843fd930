// SPDX-License-Identifier: Apache-2.0
// Times in UTC as AWS services spell them.
export module shardmesh.remote:utc_time;

import shardmesh.std;

export namespace shardmesh::remote {

/// A time of the system's clock, which all times between programs are.
using wall_time = std::chrono::system_clock::time_point;

/// Parses an ISO 8601 time, such as "2026-11-24T10:00:00Z", "2026-11-24T10:00:00.5+00:00", or "2026-11-24T10:00:00UTC".
/// Fractions of a second are dropped. A year after 2261 counts as the end of 2261, because the clock ends soon after.
/// Returns nothing for other text, and for years before 1970.
std::optional<wall_time> parse_utc_time(std::string_view text);
/// Formats a time as "20130524T000000Z". Precondition: the year is 1970 or later.
std::string basic_utc_time(wall_time time);
/// Formats a time as "2013-05-24 00:00:00 UTC", for messages.
std::string readable_utc_time(wall_time time);

}  // namespace shardmesh::remote
