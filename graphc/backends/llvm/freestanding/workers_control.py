"""What starts and ends the threads of a context, and knows those of all: LLVM IR, which workers.py
puts beside its own; regions.py says what FIELDS and `$name` are.
"""

from graphc.backends.llvm.regions import starting

SPINNING = """
; Workers spin only where there is a CPU for each thread.
define internal i32 @spinning(i32 %threads) nounwind {
entry:
  %mask = alloca [16 x i64], align 8
  %got = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %known = icmp sge i32 %got, 0
  br i1 %known, label %body, label %exit
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %total, %body ]
  %place = getelementptr i64, ptr %mask, i64 %i
  %word = load i64, ptr %place
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %total = add i64 %sum, %bits
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 16
  br i1 %more, label %body, label %counted
counted:
  %wide = sext i32 %threads to i64
  %enough = icmp sle i64 %wide, %total
  %spins = select i1 %enough, i32 $SPINS, i32 0
  ret i32 %spins
exit:
  ret i32 0
}
"""

STARTING = starting("""\
  FIELDS spins pid
  %process = call i32 @getpid()
  store i32 %process, ptr $pid
  %spins = call i32 @spinning(i32 %wanted)
  store atomic i32 %spins, ptr $spins monotonic, align 4
""", """\
  %record = getelementptr $RECORD, ptr %records, i32 %n
  store ptr %pool, ptr %record
  %number = sext i32 %n1 to i64
  %number.at = getelementptr $RECORD, ptr %record, i32 0, i32 1
  store i64 %number, ptr %number.at
""")

ENDING = """
; Ends the workers, if they are this process's; no region is under way.
define internal void @end(ptr %pool) nounwind cold {
entry:
  FIELDS workers pid
  %process = call i32 @getpid()
  %pid = load i32, ptr $pid
  %ours = icmp eq i32 %process, %pid
  br i1 %ours, label %stop, label %forget
stop:
  call void @stop_workers(ptr %pool)
  ret void
forget:
  store i32 0, ptr $workers
  ret void
}
"""

CONTROL = """
; Where the counters and records of so many threads lie as are started next.
define hidden void @graphc_pool_place(ptr %pool, ptr %claimed, ptr %records) nounwind {
  FIELDS claimed records
  store ptr %claimed, ptr %claimed.at
  store ptr %records, ptr %records.at
  ret void
}
; Ends the present workers and starts threads - 1 new ones; how many threads there are then. None
; but the first call's caller runs: the memory of `place` may have changed in between.
define hidden i32 @graphc_pool_resize(ptr %pool, i32 %threads) nounwind {
entry:
  FIELDS wanted workers
  call void @end(ptr %pool)
  store i32 %threads, ptr $wanted
  %one = icmp slt i32 %threads, 2
  br i1 %one, label %alone, label %several
several:
  call void @start(ptr %pool)
  %workers = load i32, ptr $workers
  %all = add i32 %workers, 1
  ret i32 %all
alone:
  ret i32 1
}
; Regions of this thread are the pool's. In a forked child, where no worker exists and the parent
; may have been inside a region, there are new ones.
define hidden void @graphc_pool_enter(ptr %pool) nounwind {
entry:
  FIELDS remaining sleepers busy wanted workers pid
  %wanted = load i32, ptr $wanted
  %one = icmp slt i32 %wanted, 2
  br i1 %one, label %exit, label %several
several:
  %process = call i32 @getpid()
  %pid = load i32, ptr $pid
  %ours = icmp eq i32 %process, %pid
  br i1 %ours, label %begin, label %reset
reset:
  store i32 0, ptr $workers
  store atomic i32 0, ptr $sleepers seq_cst, align 4
  store atomic i64 0, ptr $remaining seq_cst, align 8
  store atomic i32 0, ptr $busy seq_cst, align 4
  call void @start(ptr %pool)
  br label %begin
begin:
  store ptr %pool, ptr @current
  ret void
exit:
  ret void
}
define hidden void @graphc_pool_leave() nounwind {
  store ptr null, ptr @current
  ret void
}
; Who has the list is told by its process's number: what a parent has locked, a child need not wait
; for.
define internal void @take() nounwind {
entry:
  %process = call i32 @getpid()
  br label %try
try:
  %found = phi i32 [ 0, %entry ], [ %next, %wait ]
  %pair = cmpxchg ptr @lock, i32 %found, i32 %process acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %exit, label %wait
wait:
  %seen = extractvalue { i32, i1 } %pair, 0
  %own = icmp eq i32 %seen, %process
  %next = select i1 %own, i32 0, i32 %seen
  %yielded = call i32 @sched_yield()
  br label %try
exit:
  ret void
}
define hidden void @graphc_pool_list(ptr %pool) nounwind {
  FIELDS next
  call void @take()
  %first = load ptr, ptr @pools
  store ptr %first, ptr $next
  store ptr %pool, ptr @pools
  store atomic i32 0, ptr @lock release, align 4
  ret void
}
; Ends a pool's workers, and takes it off the list.
define hidden void @graphc_pool_forget(ptr %pool) nounwind {
entry:
  FIELDS next
  call void @end(ptr %pool)
  call void @take()
  br label %look
look:
  %place = phi ptr [ @pools, %entry ], [ %behind, %other ]
  %found = load ptr, ptr %place
  %none = icmp eq ptr %found, null
  br i1 %none, label %exit, label %compare
compare:
  %same = icmp eq ptr %found, %pool
  br i1 %same, label %drop, label %other
other:
  %behind = getelementptr i8, ptr %found, i64 $NEXT
  br label %look
drop:
  %rest = load ptr, ptr $next
  store ptr %rest, ptr %place
  br label %exit
exit:
  store atomic i32 0, ptr @lock release, align 4
  ret void
}
; The library goes, and code that workers wait in.
define internal void @unload() nounwind {
entry:
  call void @take()
  %first = load ptr, ptr @pools
  store ptr null, ptr @pools
  store atomic i32 0, ptr @lock release, align 4
  br label %head
head:
  %pool = phi ptr [ %first, %entry ], [ %next, %body ]
  %none = icmp eq ptr %pool, null
  br i1 %none, label %exit, label %body
body:
  FIELDS next
  %next = load ptr, ptr $next
  call void @end(ptr %pool)
  br label %head
exit:
  ret void
}
"""
