"""Uses of rows of c_tables.py about NumPy: what it writes, and what else it reads (mutate.py)."""

TEXT = """
== numpy_writes
S H = np.zeros((3, 3), "f")
B np.copyto(@H, @H % 4 + 1)
B np.put(@H, [0], [@H[1, 1] + 1])
B np.place(@H, @H >= 2, [@H[0, 0] + 1])
B np.putmask(@H, @H < 2, 7)
B np.fill_diagonal(@H, 5)
B np.put_along_axis(@H, np.array([[1], [0], [2]]), 6, 1)
B acc = acc + torch.from_numpy(@H.copy()).sum(0)
C @H[0] = 4

== numpy_files
T np.save(__file__ + "$.npy", np.ones(3, "f"))
B acc = acc + torch.from_numpy(np.load(__file__ + "$.npy"))
C np.save(__file__ + "$.npy", np.full(3, 2, "f"))

== numpy_text_files
T np.savetxt(__file__ + "$.txt", np.ones(3))
B acc = acc + torch.tensor(np.loadtxt(__file__ + "$.txt").astype("f"))
C np.savetxt(__file__ + "$.txt", np.full(3, 2))

== numpy_raw_files
T np.ones(3, "f").tofile(__file__ + "$.raw")
B acc = acc + torch.from_numpy(np.fromfile(__file__ + "$.raw", "f"))
C np.full(3, 2, "f").tofile(__file__ + "$.raw")

== numpy_mapped_files
T np.ones(3, "f").tofile(__file__ + "$.map")
B acc = acc + float(np.memmap(__file__ + "$.map", "f", "r").sum())
C np.full(3, 2, "f").tofile(__file__ + "$.map")

== numpy_saves
T def saved$(name):
T     return os.path.exists(__file__ + name)
B np.save(__file__ + "$.npy", np.ones(2))
B np.savez(__file__ + "$.npz", np.ones(2))
B np.savetxt(__file__ + "$.txt", np.ones(2))
B acc = acc + 1
C found$ = [saved$("$.npy"), saved$("$.npz"), saved$("$.txt")]
c for name in [n for n in ("$.npy", "$.npz", "$.txt") if saved$(n)]:
c     os.remove(__file__ + name)
C found$ = [saved$("$.npy"), saved$("$.npz"), saved$("$.txt")]

== numpy_settings
B before$ = np.seterr(all="ignore")
B acc = acc + 1
C found$ = np.geterr()["divide"]
c np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
C found$ = np.geterr()["divide"]
c np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")

== numpy_printing
B np.set_printoptions(precision=3)
B acc = acc + 1
C found$ = np.get_printoptions()["precision"]
c np.set_printoptions(precision=8)
C found$ = np.get_printoptions()["precision"]
c np.set_printoptions(precision=8)

== numpy_buffers
B np.setbufsize(16384)
B acc = acc + 1
C found$ = np.getbufsize()
c np.setbufsize(8192)
C found$ = np.getbufsize()
c np.setbufsize(8192)

== numpy_shuffle
T order$ = np.random.RandomState(0)
S H = np.arange(3.0)
B order$.shuffle(@H)
B acc = acc + float(@H[0])
C @H[:] = 7

== numpy_buffer_read
S H = bytearray(b"abcd")
B acc = acc + float(np.frombuffer(@H, "u1")[0])
C @H[0] = 7

== numpy_settings_read
B acc = acc + len(np.geterr()["divide"])
C np.seterr(divide="ignore")
C np.seterr(divide="warn")

== numpy_printing_read
B acc = acc + np.get_printoptions()["precision"]
C np.set_printoptions(precision=3)

== numpy_buffers_read
B acc = acc + np.getbufsize()
C np.setbufsize(16384)

== numpy_error_calls
B acc = acc + (np.geterrcall() is None)
C np.seterrcall(print)
C np.seterrcall(None)

== numpy_texts
S H = np.ones(2) / 3
B acc = acc + len(np.array2string(@H))
C np.set_printoptions(precision=3)

== numpy_long_texts
S H = np.ones(2) / 3
B acc = acc + len(np.array_repr(@H))
C np.set_printoptions(precision=3)

== numpy_short_texts
S H = np.ones(2) / 3
B acc = acc + len(np.array_str(@H))
C np.set_printoptions(precision=3)

== numpy_saves_several
T def saved$():
T     return os.path.exists(__file__ + "$.npz")
B np.savez(__file__ + "$.npz", np.ones(2))
B acc = acc + 1
C found$ = saved$()
c if found$:
c     os.remove(__file__ + "$.npz")
C found$ = saved$()

== numpy_saves_text
T def saved$():
T     return os.path.exists(__file__ + "$.txt")
B np.savetxt(__file__ + "$.txt", np.ones(2))
B acc = acc + 1
C found$ = saved$()
c if found$:
c     os.remove(__file__ + "$.txt")
C found$ = saved$()

== numpy_shapes
S H = np.array([[1.0, 2.0], [3.0, 4.0]])
B acc = acc + float(np.sum(@H, 0).max())
C @H.shape = (4, 1)

== numpy_types
S H = np.array([1.0, 2.0])
B acc = acc + float(np.sum(@H) > 100)
C @H.dtype = "i8"
"""
