// SPDX-License-Identifier: Apache-2.0
// The names that published scanners of pickles (picklescan, modelscan, fickling), and the advisories about ways around
// them, call dangerous: they start processes, run or import code, open files or connections, or reach such a function
// by its name. No list of this kind is complete: what is on neither table is unknown, not harmless.
module;
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
module shardmesh.pickle;

namespace shardmesh::pickle {
namespace {

// Modules of which every name is dangerous, and every module below them, but for the exceptions below.
constexpr std::string_view modules =
    // Processes, code, imports.
    " subprocess _posixsubprocess os posix nt pty popen2 runpy codeop importlib imp zipimport pkgutil "
    "_frozen_importlib _frozen_importlib_external pkg_resources compileall py_compile modulefinder sys sysconfig "
    "timeit "
    "pdb bdb cProfile pstats doctest pydoc idlelib lib2to3 rlcompleter unittest test.support venv ensurepip pip "
    "setuptools distutils zipapp multiprocessing _multiprocessing concurrent asyncio _asyncio threading _thread "
    "_interpreters _xxsubinterpreters interpreters atexit _signal gc ctypes _ctypes cffi _cffi_backend mmap "
    "faulthandler antigravity turtledemo IPython jupyter_client pexpect psutil msvcrt _winapi winreg _winreg tkinter "
    "readline "
    // Pickles inside of pickles.
    "pickle _pickle cPickle pickletools dill cloudpickle joblib jsonpickle shelve marshal yaml "
    // Files.
    "io _io _pyio shutil tempfile fileinput glob linecache posixpath ntpath tarfile zipfile dbm sqlite3 _sqlite3 fcntl "
    "posixfile uu binhex logging.config logging.handlers "
    // Connections.
    "socket _socket socketserver ssl _ssl selectors http httplib urllib urllib2 urllib3 httpx aiohttp requests "
    "ftplib imaplib poplib smtplib smtpd nntplib telnetlib xmlrpc wsgiref asyncore asynchat webbrowser paramiko zmq "
    "cgi cgitb syslog "
    // PyTorch's own loaders, compilers and launchers.
    "torch.hub torch._weights_only_unpickler torch.package torch.jit torch.ops torch._ops "
    "torch.classes torch._classes torch.library torch.export torch._export torch.onnx torch.compiler torch._dynamo "
    "torch._inductor torch._functorch torch.fx.experimental torch.fx.graph_module torch.fx._lazy_graph_module "
    "torch.fx._symbolic_trace torch.multiprocessing torch.testing torch.profiler torch.autograd.profiler "
    "torch.cuda._memory_viz torch.distributed.rpc torch.distributed.run torch.distributed.launch "
    "torch.distributed.launcher torch.distributed.elastic torch.utils._config_module torch.utils.collect_env "
    "torch.utils.bottleneck torch.utils.cpp_extension torch.utils.model_zoo torch.utils.show_pickle "
    "torch.utils.data.datapipes torch.utils.tensorboard torch.utils.hipify torch.utils.benchmark "
    // numpy and pandas.
    "numpy.f2py numpy.testing numpy.distutils numpy.ctypeslib numpy.compat numpy.lib.npyio numpy.lib._npyio_impl "
    "numpy.lib.format numpy.lib._format_impl pandas.io pandas.core.computation ";

// Names of one module, separated by blanks, and their parts ("attrgetter.x"). Modules of the standard library whose
// name many a program gives its own ("code", "trace") are here, not above.
struct module_names {
  std::string_view module_name, names;
};

constexpr auto table = std::to_array<module_names>({
    {"builtins",
     "eval exec execfile compile open file __import__ reload breakpoint getattr setattr delattr apply vars globals "
     "locals "
     "dir input raw_input help type super map filter reduce memoryview __build_class__ exit quit"},
    {"code", "InteractiveInterpreter InteractiveConsole interact compile_command"},
    {"commands", "getoutput getstatusoutput getstatus"},
    {"trace", "Trace CoverageResults main"},
    {"profile", "Profile run runctx main"},
    {"cmd", "Cmd"},
    {"site", "main addsitedir addpackage execsitecustomize execusercustomize"},
    {"sched", "scheduler"},
    {"platform", "popen node platform uname architecture _syscmd_ver _syscmd_file _syscmd_uname"},
    {"signal", "signal raise_signal set_wakeup_fd siginterrupt pthread_kill alarm setitimer"},
    {"select", "select poll epoll"},
    {"thread", "start_new_thread start_new interrupt_main"},
    {"itertools", "imap ifilter starmap"},
    {"operator", "attrgetter itemgetter methodcaller"},
    {"_operator", "attrgetter itemgetter methodcaller"},
    {"functools", "partial partialmethod reduce singledispatch"},
    {"_functools", "partial reduce"},
    {"types", "FunctionType LambdaType MethodType CodeType ModuleType CellType DynamicClassAttribute new_class"},
    {"collections", "namedtuple"},
    {"dataclasses", "make_dataclass"},
    {"attr", "make_class"},
    {"attrs", "make_class"},
    {"typing", "get_type_hints _eval_type"},
    {"weakref", "finalize"},
    {"inspect", "getattr_static unwrap"},
    {"codecs", "open EncodedFile StreamReaderWriter StreamRecoder lookup register"},
    {"copyreg", "__newobj__ __newobj_ex__ pickle add_extension remove_extension constructor"},
    {"logging", "FileHandler basicConfig config handlers shutdown"},
    {"uuid", "_get_command_stdout _popen getnode"},
    {"torch", "load save compile"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.serialization",
     "load _load _legacy_load save _save _legacy_save register_package add_safe_globals safe_globals "
     "clear_safe_globals _open_file _open_file_like _open_buffer_reader _open_buffer_writer _open_zipfile_reader "
     "_open_zipfile_writer "
     "_open_zipfile_writer_file _open_zipfile_writer_buffer"},
    {"torch.utils", "show_pickle"},
    {"numpy",
     "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap DataSource frompyfunc "
     "vectorize apply_along_axis apply_over_axes piecewise source lookfor test"},
    {"pandas", "read_pickle to_pickle eval read_csv read_json read_parquet read_hdf read_sql HDFStore"},
    {"keras.models", "load_model"},
    {"tensorflow.keras.models", "load_model"},
});

// Of the modules above: what only holds data.
constexpr auto exceptions = std::to_array<module_names>({
    {"io", "BytesIO StringIO"},
    {"_io", "BytesIO StringIO"},
    {"http", "HTTPStatus"},
    {"urllib.parse", "ParseResult SplitResult"},
    {"torch._dynamo.eval_frame", "OptimizedModule"},
});

// Modules that others import: reached as an attribute of those, they are what they are.
constexpr std::string_view reached =
    " os sys subprocess builtins __builtins__ posix nt importlib ctypes socket shutil pickle _pickle runpy pty ";

bool is_word_of(std::string_view words, std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  for (std::size_t at = words.find(name); at != std::string_view::npos; at = words.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// "a.b.c": ("a", "b"), ("a.b", "c"), ("a.b.c", "").
template <class Test>
bool any_beginning(std::string_view dotted, Test test) {
  for (std::size_t at = 0;;) {
    at = dotted.find('.', at);
    if (at == std::string_view::npos) return test(dotted, std::string_view());
    const std::string_view rest = dotted.substr(at + 1);
    if (test(dotted.substr(0, at), rest.substr(0, rest.find('.')))) return true;
    ++at;
  }
}

template <class Test>
bool any_component(std::string_view dotted, Test test) {
  for (;;) {
    const std::size_t dot = dotted.find('.');
    if (test(dotted.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
    dotted.remove_prefix(dot + 1);
  }
}

template <class Table>
bool names(const Table& known, std::string_view module_name, std::string_view name) {
  return std::any_of(known.begin(), known.end(), [&](const module_names& of) {
    return of.module_name == module_name && is_word_of(of.names, name);
  });
}

}  // namespace

bool is_dangerous_global(std::string_view module_name, std::string_view attribute) {
  if (is_harmless_global(module_name, attribute) || names(exceptions, module_name, attribute)) return false;
  // "torch" and "hub.load" are what "torch.hub" and "load" are.
  const std::string whole = std::string(module_name) + "." + std::string(attribute);
  const bool is_numpy = whole.starts_with("numpy.");  // whose functions lie in many of its modules
  if (any_beginning(whole, [&](std::string_view module_part, std::string_view next) {
        return is_word_of(modules, module_part) || names(table, module_part, next) ||
               (is_numpy && names(table, "numpy", next));
      }))
    return true;
  const auto leads_away = [](std::string_view part) {
    return is_word_of(reached, part) || (part.size() > 4 && part.starts_with("__") && part.ends_with("__"));
  };
  if (any_component(attribute, leads_away)) return true;
  // "OrderedDict.fromkeys": no method of the harmless classes is pickled. Their nested classes and enums' members are.
  const std::string_view first = attribute.substr(0, attribute.find('.'));
  if (first.size() == attribute.size() || !is_harmless_global(module_name, first)) return false;
  const std::string_view last = attribute.substr(attribute.rfind('.') + 1);
  return last.empty() || last[0] < 'A' || last[0] > 'Z';
}

}  // namespace shardmesh::pickle
