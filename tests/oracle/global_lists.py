# SPDX-License-Identifier: Apache-2.0
"""Lists of names in pickles, dangerous and unknown. Nothing here is ever unpickled."""

# Modules and functions from the advisories and from the lists of picklescan, modelscan, and fickling: all are
# dangerous. A list of forbidden names is never complete, so a list of harmless names decides what passes `--strict`.
ADVISORIES = """os.system posix.system nt.system subprocess.Popen builtins.eval builtins.exec builtins.compile builtins.open
builtins.__import__ builtins.breakpoint builtins.dict.get builtins.getattr builtins.setattr builtins.type builtins.map
builtins.vars builtins.globals operator.attrgetter _operator.attrgetter _operator.methodcaller operator.itemgetter
functools.partial functools.reduce _posixsubprocess.fork_exec asyncio.unix_events._UnixSubprocessTransport._start
timeit.timeit torch.utils._config_module.ConfigModule.load_config torch.utils.collect_env.run torch.hub.load
torch.utils.bottleneck.__main__.run_cprofile torch._dynamo.guards.GuardBuilder.get torch.jit.unsupported_tensor_ops.execWrapper
torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression torch._inductor.codecache.compile_file
torch.utils.data.datapipes.utils.decoder.basichandlers torch.storage._load_from_bytes torch.serialization.load torch.load
torch._utils.os.system torch.Tensor.register_hook idlelib.pyshell.ModifiedInterpreter.runcode
idlelib.autocomplete.AutoComplete.get_entity idlelib.calltip.get_entity idlelib.debugobj.ObjectTreeItem.SetText
idlelib.run.Executive.runcode lib2to3.pgen2.grammar.Grammar.loads lib2to3.pgen2.pgen.ParserGenerator.make_label pty.spawn
runpy.run_path runpy._run_code ctypes.CDLL cProfile.run profile.Profile.run trace.Trace.run doctest.debug_script pdb.run
bdb.Bdb.run pydoc.locate pydoc.pipepager importlib.import_module importlib.util.find_spec pkgutil.resolve_name
code.InteractiveInterpreter.runcode codeop.compile_command multiprocessing.util.spawnv_passfds marshal.loads
types.FunctionType types.CodeType pickle.loads _pickle.loads cloudpickle.loads dill.loads joblib.load numpy.load
numpy.f2py.crackfortran.getlincoef numpy.testing._private.utils.runstring numpy.__builtins__ numpy.core._internal.sys.modules
pip.main ensurepip._run_pip venv.create ssl.get_server_certificate webbrowser.open distutils.file_util.write_file
shutil.rmtree socket.create_connection sys.modules sys.settrace _io.FileIO io.open io.open_code logging.FileHandler
logging.config.fileConfig _interpreters.run_string _xxsubinterpreters.create commands.getoutput requests.api.get
aiohttp.web.run_app httplib.HTTPSConnection pathlib.os.system smtplib.SMTP imaplib.IMAP4_stream signal.signal
linecache.getlines test.support.script_helper.assert_python_ok uuid._get_command_stdout collections.OrderedDict.__init__
collections.namedtuple copyreg.__newobj_ex__ copyreg.pickle copyreg.add_extension functools.partialmethod
operator.methodcaller torch.save torch.hub.download_url_to_file torch.package.PackageImporter torch.ops.load_library
torch.utils.cpp_extension.load_inline torch.fx.graph_module.reduce_graph_module torch.distributed.rpc.rpc_sync
torch.testing._internal.common_utils.run_tests numpy.fromfile numpy.memmap numpy.lib.npyio.load numpy.ctypeslib.load_library
numpy.core.multiarray.fromfile pandas.read_pickle pandas.eval urllib.request.urlopen ftplib.FTP telnetlib.Telnet
http.client.HTTPSConnection xmlrpc.client.ServerProxy socketserver.TCPServer concurrent.futures.ProcessPoolExecutor
threading.Thread _thread.start_new_thread atexit.register gc.get_objects mmap.mmap tempfile.NamedTemporaryFile
zipfile.ZipFile tarfile.open fileinput.input glob.glob os.path.join posixpath.join nt.startfile pty.fork cgitb.enable
dataclasses.make_dataclass types.MethodType builtins.input builtins.delattr builtins.filter weakref.finalize
unittest.mock._importer imp.load_source zipimport.zipimporter pkg_resources.run_script setuptools.sandbox.run_setup
multiprocessing.Process sqlite3.connect shelve.open yaml.unsafe_load psutil.Popen logging.basicConfig platform.popen
torch.os.system numpy.os transformers.utils.import_utils.importlib.import_module mypackage.os.system
_osx_support._read_output _aix_support._read_cmd_output _pyrepl.pager.pipe_pager pipes.Template _imp.create_dynamic
inspect.getmodule filecmp.cmp difflib.SequenceMatcher uuid._ip_getnode uuid._find_mac uuid._netstat_getnode
_bootsubprocess.check_output mailcap.findmatch operator.call _testcapi.run_in_subinterp sympy.sympify gzip.open bz2.open
lzma.open wave.open torch.distributed.distributed_c10d._tensor_to_object dataclasses._create_fn gettext.c2py
argparse.FileType copy._reconstruct curses.wrapper xml.sax.make_parser xml.dom.domreg.getDOMImplementation
pyclbr.readmodule tokenize.open mailbox.Maildir netrc.netrc tabnanny.check
six.moves.builtins.eval anydbm.open dumbdbm.open gdbm.open dbhash.open whichdb.whichdb SocketServer.TCPServer
xmlrpclib.ServerProxy SimpleXMLRPCServer.SimpleXMLRPCServer BaseHTTPServer.HTTPServer CGIHTTPServer.test
SimpleHTTPServer.test Tkinter.Tk tkFileDialog.askopenfile FileDialog.FileDialog cookielib.CookieJar
robotparser.RobotFileParser test.test_support.run_unittest""".split()

# (module, dotted name): a module that another module imports, under its own name or an alias, counts as itself.
REACHED = (("random", "_os.system"), ("argparse", "_os.system"), ("enum", "bltns.eval"),
           ("torch._utils", "torch.storage._load_from_bytes"), ("torch.storage", "io.open"), ("pathlib", "io.open"),
           ("torch.serialization", "tarfile.open"), ("collections", "_sys.modules.get"), ("types", "_sys.modules"),
           ("torch", "functools.partial"), ("mymodel", "torch.load"), ("mymodel", "torch.hub.load"),
           ("mymodel", "np.load"), ("mymodel", "operator.attrgetter"), ("mymodel", "threading.Thread"),
           ("mymodel", "linecache.getlines"), ("collections", "_itemgetter"), ("mymodel", "a.b.pd.read_pickle"))

# Names in the pickles of ordinary programs that are not plain data: nobody knows whether they are harmless.
UNKNOWN = """mymodel.Net mymodel.layers.Outer.Inner transformers.training_args.TrainingArguments code.models.Net test.Model
torch.nn.modules.linear.Linear torch.optim.adamw.AdamW torch.optim.lr_scheduler.LambdaLR accelerate.state.GradientState
numpy.random._pickle.__generator_ctor numpy.random.__RandomState_ctor io.BytesIO _io.StringIO http.HTTPStatus logging.getLogger
operator.add zoneinfo.ZoneInfo._unpickle enum.Enum signal.SIGINT osmosis.system sysutils.run trace.Point re._compile
torch.distributed.fsdp.api.ShardingStrategy inspect.Signature inspect._ParameterKind mypackage.io.Reader mymodel.Net.glob
UserDict.UserDict difflib_like.Differ mymodel.operator.Add torch._dynamo.eval_frame.OptimizedModule torch.serialization._get_laymut builtins.print builtins.ValueError string.Template""".split()
