"""What code for WebAssembly calls and no library has there, as LLVM assembly.

Memory is the loader's to give: there is none to be had inside. `fmaf` is exact: the product is, in
64 bits; the sum is rounded to odd (Boldo and Melquiond, "Emulation of a FMA and correctly rounded
sums", 2008), and then once to 32.
"""

from __future__ import annotations

RUNTIME = """
declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)
declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)
define hidden ptr @graphc_copy(ptr %to, ptr %from, i64 %bytes) nounwind {
  %size = trunc i64 %bytes to i32
  call void @llvm.memcpy.p0.p0.i32(ptr %to, ptr %from, i32 %size, i1 false)
  ret ptr %to
}
define hidden ptr @graphc_set(ptr %to, i32 %value, i64 %bytes) nounwind {
  %size = trunc i64 %bytes to i32
  %byte = trunc i32 %value to i8
  call void @llvm.memset.p0.i32(ptr %to, i8 %byte, i32 %size, i1 false)
  ret ptr %to
}
define hidden ptr @malloc(i64 %bytes) nounwind {
  ret ptr null
}
define hidden void @free(ptr %memory) nounwind {
  ret void
}
define hidden i32 @graphc_cpu_level() nounwind {
  ret i32 0
}
define hidden float @fmaf(float %a, float %b, float %c) nounwind {
  %x = fpext float %a to double
  %y = fpext float %b to double
  %z = fpext float %c to double
  %product = fmul double %x, %y
  %sum = fadd double %product, %z
  %second = fsub double %sum, %product
  %first = fsub double %sum, %second
  %lost1 = fsub double %product, %first
  %lost2 = fsub double %z, %second
  %lost = fadd double %lost1, %lost2
  %bits = bitcast double %sum to i64
  %inexact = fcmp one double %lost, 0.0
  %odd = trunc i64 %bits to i1
  %even = xor i1 %odd, true
  %moves = and i1 %inexact, %even
  %positive = fcmp ogt double %lost, 0.0
  %above = fcmp ogt double %sum, 0.0
  %away = icmp eq i1 %positive, %above
  %step = select i1 %away, i64 1, i64 -1
  %moved = add i64 %bits, %step
  %chosen = select i1 %moves, i64 %moved, i64 %bits
  %rounded = bitcast i64 %chosen to double
  %result = fptrunc double %rounded to float
  ret float %result
}
; A half's exponent is moved by a multiplication, which also makes subnormals normal.
define hidden float @__extendhfsf2(i32 %half) nounwind {
  %magnitude = and i32 %half, 32767
  %above = and i32 %half, 32768
  %sign = shl i32 %above, 16
  %shifted = shl i32 %magnitude, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %number = bitcast float %scaled to i32
  %special = icmp ugt i32 %magnitude, 31743
  %infinite = or i32 %shifted, 2139095040
  %chosen = select i1 %special, i32 %infinite, i32 %number
  %bits = or i32 %chosen, %sign
  %result = bitcast i32 %bits to float
  ret float %result
}
; The product of two numbers of 128 bits, in halves.
define hidden void @__multi3(ptr %out, i64 %a, i64 %a.high, i64 %b, i64 %b.high) nounwind {
  %a0 = and i64 %a, 4294967295
  %a1 = lshr i64 %a, 32
  %b0 = and i64 %b, 4294967295
  %b1 = lshr i64 %b, 32
  %p00 = mul i64 %a0, %b0
  %p01 = mul i64 %a0, %b1
  %p10 = mul i64 %a1, %b0
  %p11 = mul i64 %a1, %b1
  %carry0 = lshr i64 %p00, 32
  %low01 = and i64 %p01, 4294967295
  %middle0 = add i64 %carry0, %low01
  %low10 = and i64 %p10, 4294967295
  %middle = add i64 %middle0, %low10
  %low0 = and i64 %p00, 4294967295
  %low1 = shl i64 %middle, 32
  %low = or i64 %low0, %low1
  %carry1 = lshr i64 %middle, 32
  %high01 = lshr i64 %p01, 32
  %high10 = lshr i64 %p10, 32
  %s0 = add i64 %p11, %carry1
  %s1 = add i64 %s0, %high01
  %s2 = add i64 %s1, %high10
  %c0 = mul i64 %a, %b.high
  %c1 = mul i64 %a.high, %b
  %s3 = add i64 %s2, %c0
  %high = add i64 %s3, %c1
  store i64 %low, ptr %out, align 8
  %second = getelementptr i64, ptr %out, i32 1
  store i64 %high, ptr %second, align 8
  ret void
}
"""
