// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
module shardmesh.pickle;

import :old_names;

namespace shardmesh::pickle {
namespace {

struct renamed_module {
  std::string_view old_name, new_name;
};

constexpr auto renamed_modules = std::to_array<renamed_module>({
    {"BaseHTTPServer", "http.server"},
    {"CGIHTTPServer", "http.server"},
    {"ConfigParser", "configparser"},
    {"Cookie", "http.cookies"},
    {"Dialog", "tkinter.dialog"},
    {"DocXMLRPCServer", "xmlrpc.server"},
    {"FileDialog", "tkinter.filedialog"},
    {"HTMLParser", "html.parser"},
    {"Queue", "queue"},
    {"ScrolledText", "tkinter.scrolledtext"},
    {"SimpleDialog", "tkinter.simpledialog"},
    {"SimpleHTTPServer", "http.server"},
    {"SimpleXMLRPCServer", "xmlrpc.server"},
    {"SocketServer", "socketserver"},
    {"StringIO", "io"},
    {"Tix", "tkinter.tix"},
    {"Tkconstants", "tkinter.constants"},
    {"Tkdnd", "tkinter.dnd"},
    {"Tkinter", "tkinter"},
    {"UserDict", "collections"},
    {"UserList", "collections"},
    {"UserString", "collections"},
    {"__builtin__", "builtins"},
    {"_abcoll", "collections.abc"},
    {"_elementtree", "xml.etree.ElementTree"},
    {"_winreg", "winreg"},
    {"anydbm", "dbm"},
    {"cPickle", "pickle"},
    {"cStringIO", "io"},
    {"commands", "subprocess"},
    {"cookielib", "http.cookiejar"},
    {"copy_reg", "copyreg"},
    {"dbhash", "dbm.bsd"},
    {"dbm", "dbm.ndbm"},
    {"dumbdbm", "dbm.dumb"},
    {"dummy_thread", "_dummy_thread"},
    {"gdbm", "dbm.gnu"},
    {"htmlentitydefs", "html.entities"},
    {"httplib", "http.client"},
    {"markupbase", "_markupbase"},
    {"repr", "reprlib"},
    {"robotparser", "urllib.robotparser"},
    {"test.test_support", "test.support"},
    {"thread", "_thread"},
    {"tkColorChooser", "tkinter.colorchooser"},
    {"tkCommonDialog", "tkinter.commondialog"},
    {"tkFileDialog", "tkinter.filedialog"},
    {"tkFont", "tkinter.font"},
    {"tkMessageBox", "tkinter.messagebox"},
    {"tkSimpleDialog", "tkinter.simpledialog"},
    {"ttk", "tkinter.ttk"},
    {"urllib2", "urllib.request"},
    {"urlparse", "urllib.parse"},
    {"whichdb", "dbm"},
    {"xmlrpclib", "xmlrpc.client"},
});

struct moved_name {
  std::string_view old_module, old_name;
  renamed_global now;
};

constexpr auto moved_names = std::to_array<moved_name>({
    {"UserDict", "IterableUserDict", {"collections", "UserDict"}},
    {"UserDict", "UserDict", {"collections", "UserDict"}},
    {"UserList", "UserList", {"collections", "UserList"}},
    {"UserString", "UserString", {"collections", "UserString"}},
    {"__builtin__", "basestring", {"builtins", "str"}},
    {"__builtin__", "intern", {"sys", "intern"}},
    {"__builtin__", "long", {"builtins", "int"}},
    {"__builtin__", "reduce", {"functools", "reduce"}},
    {"__builtin__", "unichr", {"builtins", "chr"}},
    {"__builtin__", "unicode", {"builtins", "str"}},
    {"__builtin__", "xrange", {"builtins", "range"}},
    {"_multiprocessing", "Connection", {"multiprocessing.connection", "Connection"}},
    {"_socket", "fromfd", {"socket", "fromfd"}},
    {"itertools", "ifilter", {"builtins", "filter"}},
    {"itertools", "ifilterfalse", {"itertools", "filterfalse"}},
    {"itertools", "imap", {"builtins", "map"}},
    {"itertools", "izip", {"builtins", "zip"}},
    {"itertools", "izip_longest", {"itertools", "zip_longest"}},
    {"multiprocessing", "AuthenticationError", {"multiprocessing.context", "AuthenticationError"}},
    {"multiprocessing", "BufferTooShort", {"multiprocessing.context", "BufferTooShort"}},
    {"multiprocessing", "ProcessError", {"multiprocessing.context", "ProcessError"}},
    {"multiprocessing", "TimeoutError", {"multiprocessing.context", "TimeoutError"}},
    {"multiprocessing.forking", "Popen", {"multiprocessing.popen_fork", "Popen"}},
    {"multiprocessing.process", "Process", {"multiprocessing.context", "Process"}},
    {"socket", "_socketobject", {"socket", "SocketType"}},
    {"urllib", "ContentTooShortError", {"urllib.error", "ContentTooShortError"}},
    {"urllib", "getproxies", {"urllib.request", "getproxies"}},
    {"urllib", "pathname2url", {"urllib.request", "pathname2url"}},
    {"urllib", "quote", {"urllib.parse", "quote"}},
    {"urllib", "quote_plus", {"urllib.parse", "quote_plus"}},
    {"urllib", "unquote", {"urllib.parse", "unquote"}},
    {"urllib", "unquote_plus", {"urllib.parse", "unquote_plus"}},
    {"urllib", "url2pathname", {"urllib.request", "url2pathname"}},
    {"urllib", "urlcleanup", {"urllib.request", "urlcleanup"}},
    {"urllib", "urlencode", {"urllib.parse", "urlencode"}},
    {"urllib", "urlopen", {"urllib.request", "urlopen"}},
    {"urllib", "urlretrieve", {"urllib.request", "urlretrieve"}},
    {"urllib2", "HTTPError", {"urllib.error", "HTTPError"}},
    {"urllib2", "URLError", {"urllib.error", "URLError"}},
    {"whichdb", "whichdb", {"dbm", "whichdb"}},
});

}  // namespace

std::optional<renamed_global> renamed_in_python3(std::string_view module_name, std::string_view name) {
  const auto moved = std::find_if(moved_names.begin(), moved_names.end(), [&](const moved_name& known) {
    return known.old_module == module_name && known.old_name == name;
  });
  if (moved != moved_names.end()) return moved->now;
  const auto renamed = std::find_if(renamed_modules.begin(), renamed_modules.end(),
                                    [&](const renamed_module& known) { return known.old_name == module_name; });
  if (renamed != renamed_modules.end()) return renamed_global{renamed->new_name, name};
  return std::nullopt;
}

}  // namespace shardmesh::pickle
