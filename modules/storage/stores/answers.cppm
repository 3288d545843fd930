// SPDX-License-Identifier: Apache-2.0
// Not exported: questions to stores, and their answers while a `remembered_answers` is open on the thread. `places`
// turns the answers into those of std::filesystem.
module shardmesh.storage:answers;

import shardmesh.std;
import shardmesh.core;
import :source;
import :store;

namespace shardmesh {

// The objects and folders in a folder, ascending by name; an object precedes a folder of its name.
using folder_list = std::shared_ptr<const std::vector<stored_object>>;

// Returns the object or folder of a URL; nothing when neither has it.
result<std::optional<stored_object>> ask_look(const std::string& url);
// Returns what is in a folder. When the store cannot list it, only names of descriptions are found.
result<folder_list> ask_list(const std::string& url);
// Opens an object. The source's name has no secrets.
result<std::unique_ptr<byte_source>> ask_open(const std::string& url);

// Returns the lists of this thread's scope that have all names of their folder, with the folders' trimmed URLs.
std::vector<std::pair<std::string, folder_list>> complete_lists();

// The next two belong to `remembered_answers`. `begin_answers` returns false when a scope is already open.
bool begin_answers();
void end_answers();
std::optional<error> first_failure();

// Returns whether a URL has a query.
bool has_query(std::string_view url);
// Returns a URL without slashes at its end; one with a query is unchanged.
std::string_view trimmed(std::string_view url);

}  // namespace shardmesh
