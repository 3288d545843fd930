// SPDX-License-Identifier: Apache-2.0
// The dangerous names of published pickle scanners (picklescan, modelscan, fickling) and of the advisories about ways
// around them. They start processes, run or import code, open files or connections, or reach such a function by its
// name. No such list is complete: a name that is on neither table is unknown, not harmless.
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.pickle;

import :old_names;

namespace shardmesh::pickle {
namespace {

// Modules whose names are all dangerous, with their submodules, except for the exceptions below.
constexpr std::string_view modules =
    // Processes, code, imports.
    " subprocess _posixsubprocess os posix nt pty popen2 runpy codeop importlib imp zipimport pkgutil "
    "_frozen_importlib _frozen_importlib_external pkg_resources compileall py_compile modulefinder sys sysconfig "
    "timeit "
    "pdb bdb cProfile pstats doctest pydoc idlelib lib2to3 rlcompleter unittest test.support test.test_support venv "
    "ensurepip pip "
    "setuptools distutils zipapp multiprocessing _multiprocessing concurrent asyncio _asyncio threading _thread "
    "_interpreters _xxsubinterpreters interpreters atexit _signal gc ctypes _ctypes cffi _cffi_backend mmap "
    "faulthandler antigravity turtle turtledemo IPython jupyter_client pexpect psutil msvcrt _winapi winreg _winreg "
    "tkinter _tkinter readline _imp inspect pipes mailcap _bootsubprocess _osx_support _aix_support _pyrepl _testcapi "
    "_testinternalcapi _sitebuiltins pyclbr tabnanny imputil ihooks rexec Bastion hotshot dl xml.dom.domreg xml.sax "
    "sympy.parsing sympy.core.sympify sympy.utilities.lambdify sympy.utilities.autowrap sympy.utilities._compilation "
    "six.moves past.builtins past.translation future.moves future.builtins "
    // Nested pickles.
    "pickle _pickle cPickle pickletools dill cloudpickle joblib sklearn.externals.joblib jsonpickle shelve marshal "
    "yaml "
    // Files.
    "io _io _pyio shutil tempfile fileinput glob linecache posixpath ntpath tarfile zipfile dbm sqlite3 _sqlite3 fcntl "
    "posixfile uu binhex logging.config logging.handlers gzip bz2 lzma wave aifc sunau sndhdr imghdr mailbox netrc "
    "filecmp difflib xml.dom.expatbuilder xml.dom.pulldom xml.dom.xmlbuilder xml.etree.ElementInclude bsddb dircache "
    "nis ossaudiodev msilib "
    // Connections.
    "socket _socket socketserver ssl _ssl selectors http httplib urllib urllib2 urllib3 httpx aiohttp requests "
    "ftplib imaplib poplib smtplib smtpd nntplib telnetlib xmlrpc wsgiref asyncore asynchat webbrowser paramiko zmq "
    "cgi cgitb syslog "
    // PyTorch's own loaders, compilers, and launchers.
    "torch.hub torch._weights_only_unpickler torch.package torch.jit torch.ops torch._ops "
    "torch.classes torch._classes torch.library torch.export torch._export torch.onnx torch.compiler torch._dynamo "
    "torch._inductor torch._functorch torch.fx.experimental torch.fx.graph_module torch.fx._lazy_graph_module "
    "torch.fx._symbolic_trace torch.multiprocessing torch.testing torch.profiler torch.autograd.profiler "
    "torch.cuda._memory_viz torch.distributed.rpc torch.distributed.run torch.distributed.launch "
    "torch.distributed.launcher torch.distributed.elastic torch.utils._config_module torch.utils.collect_env "
    "torch.utils.bottleneck torch.utils.cpp_extension torch.utils.model_zoo torch.utils.show_pickle "
    "torch.utils.data.datapipes torch.utils.tensorboard torch.utils.hipify torch.utils.benchmark torch._vendor.quack "
    "torch._strobelight torch.utils._strobelight torch.utils._get_clean_triton torch.utils._cpp_embed_headers "
    "torch.utils.file_baton torch.utils._content_store torch.utils.jit torch.distributed.nn.jit "
    "torch.distributed.flight_recorder torch.distributed.debug torch.backends.xeon "
    "torch.cuda._annotate_cuda_graph_trace "
    "torch.cuda.gds torch.cuda.jiterator torch._numpy.testing torch.fx._graph_pickler "
    "torch.distributed.checkpoint.format_utils torch.distributed.checkpoint.staging "
    "torch.distributed.checkpoint._consolidate_hf_safetensors torch.distributed.checkpoint._experimental "
    "torch.nn.utils._deprecation_utils "
    // numpy and pandas.
    "numpy.f2py numpy.testing numpy.distutils numpy.ctypeslib numpy.compat numpy.lib.npyio numpy.lib._npyio_impl "
    "numpy.lib.format numpy.lib._format_impl pandas.io pandas.core.computation ";

// Dangerous names of single modules, separated by blanks; attributes of a name ("attrgetter.x") also count. Modules of
// the standard library whose names are common in programs ("code", "trace") are here, not above.
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
    {"platform",
     "popen node platform uname architecture processor libc_ver freedesktop_os_release _syscmd_ver _syscmd_file "
     "_syscmd_uname _mac_ver_xml _Processor"},
    {"signal", "signal raise_signal set_wakeup_fd siginterrupt pthread_kill alarm setitimer"},
    {"select", "select poll epoll"},
    {"thread", "start_new_thread start_new interrupt_main"},
    {"itertools", "imap ifilter starmap"},
    {"operator", "attrgetter itemgetter methodcaller call"},
    {"_operator", "attrgetter itemgetter methodcaller call"},
    {"functools", "partial partialmethod reduce singledispatch"},
    {"_functools", "partial reduce"},
    {"types", "FunctionType LambdaType MethodType CodeType ModuleType CellType DynamicClassAttribute new_class"},
    {"collections", "namedtuple"},
    {"dataclasses", "make_dataclass _create_fn _process_class"},
    {"argparse", "FileType"},
    {"base64", "main"},
    {"quopri", "main"},
    {"compiler", "compile compileFile parseFile"},
    {"copy", "_reconstruct"},
    {"curses", "wrapper"},
    {"dis", "main"},
    {"encodings", "search_function"},
    {"getpass", "getpass unix_getpass win_getpass fallback_getpass"},
    {"gettext", "c2py find translation install bindtextdomain Catalog"},
    {"mimetypes", "MimeTypes init read_mime_types"},
    {"new", "function code instancemethod module classobj"},
    {"optparse", "Values"},
    {"symtable", "symtable"},
    {"tokenize", "open main"},
    {"tracemalloc", "Snapshot"},
    {"typing", "get_type_hints _eval_type"},
    {"warnings", "_getcategory _setoption _processoptions"},
    {"xml.dom", "getDOMImplementation registerDOMImplementation"},
    {"xml.dom.minidom", "parse parseString getDOMImplementation"},
    {"xml.etree.ElementTree", "parse iterparse ElementTree"},
    {"xml.etree.cElementTree", "parse iterparse ElementTree"},
    {"attr", "make_class"},
    {"attrs", "make_class"},
    {"weakref", "finalize"},
    {"codecs", "open EncodedFile StreamReaderWriter StreamRecoder lookup register"},
    {"copyreg", "__newobj__ __newobj_ex__ pickle add_extension remove_extension constructor"},
    {"logging", "FileHandler basicConfig config handlers shutdown"},
    {"uuid",
     "_get_command_stdout _popen getnode uuid1 _find_mac _find_mac_near_keyword _find_mac_under_heading _ip_getnode "
     "_ifconfig_getnode _arp_getnode _lanscan_getnode _netstat_getnode _ipconfig_getnode _netbios_getnode "
     "_unix_getnode _windll_getnode _load_system_functions"},
    {"numexpr", "evaluate"},
    {"sympy", "sympify lambdify parse_expr preview plot"},
    {"torch", "load save compile from_file import_ir_module _import_dotted_name _load_global_deps __getattr__"},
    {"torch._C", "PyTorchFileReader PyTorchFileWriter import_ir_module import_ir_module_from_buffer"},
    {"torch._utils", "_import_dotted_name _augment_memory_snapshot_stack_traces"},
    {"torch._library.fake_profile", "load_op_profiles save_op_profiles"},
    {"torch._library.infer_schema", "infer_schema"},
    {"torch.fx.operator_schemas", "_torchscript_type_to_python_type"},
    {"torch.cuda.memory", "_dump_snapshot _save_segment_usage _save_memory_usage"},
    {"torch.cuda.tunable", "tune_gemm_in_file"},
    {"torch.distributed",
     "all_gather_object broadcast_object_list gather_object recv_object_list scatter_object_list send_object_list "
     "interaction"},
    {"torch.distributed.distributed_c10d",
     "_tensor_to_object _object_to_tensor _pickler _unpickler all_gather_object broadcast_object_list gather_object "
     "recv_object_list "
     "scatter_object_list send_object_list"},
    {"torch.distributed.checkpoint", "load save async_save load_state_dict save_state_dict"},
    {"torch.distributed.checkpoint.state_dict_loader", "load load_state_dict"},
    {"torch.distributed.checkpoint.state_dict_saver", "save async_save save_state_dict"},
    {"torch.utils._pytree", "_defaultdict_deserialize enum_object_hook treespec_loads"},
    {"torch.utils._traceback", "report_compile_source_on_error"},
    {"torch.xpu.memory", "_dump_snapshot"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.serialization",
     "load _load _legacy_load save _save _legacy_save register_package add_safe_globals safe_globals "
     "clear_safe_globals _open_file _open_file_like _open_buffer_reader _open_buffer_writer _open_zipfile_reader "
     "_open_zipfile_writer "
     "_open_zipfile_writer_file _open_zipfile_writer_buffer"},
    {"torch.utils", "show_pickle"},
    {"numpy",
     "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap open_memmap DataSource "
     "frompyfunc _dump _open _ufunc_reconstruct add_newdoc _makenamedict openfile fromtextfile "
     "vectorize apply_along_axis apply_over_axes piecewise source lookfor test"},
    {"pandas", "read_pickle to_pickle eval read_csv read_json read_parquet read_hdf read_sql HDFStore"},
    {"keras.models", "load_model"},
    {"tensorflow.keras.models", "load_model"},
});

// Names of the modules above that only hold data.
constexpr auto exceptions = std::to_array<module_names>({
    {"io", "BytesIO StringIO"},
    {"_io", "BytesIO StringIO"},
    {"http", "HTTPStatus"},
    {"difflib", "Match"},
    {"inspect", "BoundArguments Parameter Signature _ParameterKind _empty"},
    {"urllib.parse", "ParseResult SplitResult"},
    {"torch._dynamo.eval_frame", "OptimizedModule"},
});

// Modules that other modules import: an attribute that names one leads to it.
constexpr std::string_view reached =
    " os sys subprocess builtins __builtins__ posix nt importlib ctypes socket shutil pickle _pickle runpy pty _os "
    "_sys "
    "_subprocess _builtins _importlib _ctypes _socket _shutil bltns ";

// Other names under which the standard library, PyTorch, and programs import modules. A leading underscore needs no
// entry of its own.
struct import_alias {
  std::string_view name, module_name;
};
constexpr auto aliases = std::to_array<import_alias>({
    {"__builtins__", "builtins"},
    {"_frozen_importlib", "importlib"},
    {"_osp", "os.path"},
    {"_pyprofile", "profile"},
    {"bltns", "builtins"},
    {"dcp", "torch.distributed.checkpoint"},
    {"dist", "torch.distributed"},
    {"mp", "multiprocessing"},
    {"np", "numpy"},
    {"osp", "os.path"},
    {"pd", "pandas"},
    {"pkl", "pickle"},
    {"prof", "torch.autograd.profiler"},
    {"pytree", "torch.utils._pytree"},
    {"python_multiprocessing", "multiprocessing"},
    {"reducer", "multiprocessing.reduction"},
    {"sp", "subprocess"},
});

// Functions that modules import under their own names, such as `itemgetter` in collections. No class of a program has
// such a name.
constexpr std::string_view imported_functions =
    " Popen check_call check_output getoutput getstatusoutput import_module attrgetter itemgetter methodcaller "
    "execfile "
    "__import__ run_path urlopen urlretrieve fork_exec create_connection CDLL mkstemp mkdtemp NamedTemporaryFile "
    "rmtree "
    "_load_from_bytes _import_dotted_name partial partialmethod namedtuple starmap builtin_open bltn_open ";

bool is_word_of(std::string_view words, std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  for (std::size_t at = words.find(name); at != std::string_view::npos; at = words.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// Splits "a.b.c" into ("a", "b"), ("a.b", "c"), and ("a.b.c", "").
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

// For "torch.hub.load", tests "hub" in "torch", then "load" in "torch.hub", then the whole name.
bool is_listed(std::string_view whole) {
  const bool is_numpy = whole.starts_with("numpy.");  // numpy repeats its functions in many of its modules
  return any_beginning(whole, [&](std::string_view module_part, std::string_view next) {
    return is_word_of(modules, module_part) || names(table, module_part, next) ||
           (is_numpy && names(table, "numpy", next));
  });
}

bool is_exempt(std::string_view whole) {
  return any_beginning(whole, [&](std::string_view module_part, std::string_view) {
    return module_part.size() < whole.size() && names(exceptions, module_part, whole.substr(module_part.size() + 1));
  });
}

bool is_reached(std::string_view whole) {
  return is_listed(whole) && !is_exempt(whole);
}

// Finds "hub.torch.load", which begins with a module that another one imported. A single word may name anything.
bool names_imported_module(std::string_view attribute) {
  for (;;) {
    const std::size_t dot = attribute.find('.');
    if (dot == std::string_view::npos) {
      while (attribute.starts_with('_') && !is_word_of(imported_functions, attribute)) attribute.remove_prefix(1);
      return is_word_of(imported_functions, attribute);
    }
    std::string_view first = attribute.substr(0, dot);
    const std::string rest(attribute.substr(dot));
    if (is_reached(attribute)) return true;
    const auto alias =
        std::find_if(aliases.begin(), aliases.end(), [&](const import_alias& known) { return known.name == first; });
    if (alias != aliases.end() && is_reached(std::string(alias->module_name) + rest)) return true;
    while (first.starts_with('_')) first.remove_prefix(1);
    if (!first.empty() && is_reached(std::string(first) + rest)) return true;
    attribute.remove_prefix(dot + 1);
  }
}

}  // namespace

bool is_dangerous_global(std::string_view module_name, std::string_view attribute) {
  if (is_harmless_global(module_name, attribute) || names(exceptions, module_name, attribute)) return false;
  const auto whole = [](std::string_view in, std::string_view name) {
    return std::string(in) + "." + std::string(name);
  };
  if (is_listed(whole(module_name, attribute)) || names_imported_module(attribute)) return true;
  const std::optional<renamed_global> renamed = renamed_in_python3(module_name, attribute);
  if (renamed && is_reached(whole(renamed->module_name, renamed->name))) return true;
  const auto leads_away = [](std::string_view part) {
    return is_word_of(reached, part) || (part.size() > 4 && part.starts_with("__") && part.ends_with("__"));
  };
  if (any_component(attribute, leads_away)) return true;
  // "OrderedDict.fromkeys": picklers write no methods of the harmless classes, only nested classes and enum members.
  const std::string_view first = attribute.substr(0, attribute.find('.'));
  if (first.size() == attribute.size() || !is_harmless_global(module_name, first)) return false;
  const std::string_view last = attribute.substr(attribute.rfind('.') + 1);
  return last.empty() || last[0] < 'A' || last[0] > 'Z';
}

}  // namespace shardmesh::pickle
