// Switching from one stack to another. By hand on x86-64 (3 ns); elsewhere by ucontext, whose
// system call for the signal mask costs a hundred times that.
#pragma once
#include <cstddef>

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
.type emulated_switch,@function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch,.-emulated_switch
)");

// A stack on which `entry` starts at the first switch to it.
inline void* fresh_stack(char* stack, size_t size, void (*entry)()) {
  void** top = (void**)((size_t)(stack + size) & ~(size_t)15);
  *--top = nullptr;  // entry's return address: the ABI wants it 8 bytes off 16
  *--top = (void*)entry;
  return top - 6;  // the six registers, whatever they are
}
inline void switch_stack(void** from, void* to) { emulated_switch(from, to); }
#else
#include <ucontext.h>

inline void* fresh_stack(char* stack, size_t size, void (*entry)()) {
  ucontext_t* context = (ucontext_t*)stack;  // kept at the far end of its own stack
  getcontext(context);
  context->uc_stack.ss_sp = stack + sizeof(ucontext_t);
  context->uc_stack.ss_size = size - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
inline void switch_stack(void** from, void* to) {
  static ucontext_t host;
  if (!*from) *from = &host;
  swapcontext((ucontext_t*)*from, (ucontext_t*)to);
}
#endif
