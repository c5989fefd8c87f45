//! Classify digits from Rust: the library's functions, as digits.h declares them, behind a Model
//! that frees itself.
//!
//!     rustc --edition=2021 -O client.rs -L ../out -C link-arg=-Wl,-rpath,'$ORIGIN/../out' -o client
//!     ./client ../out/golden [x86-64-v3]

use std::error::Error;
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};

const ABI: i32 = 1;
const COMPUTED: i64 = i64::MIN;
const F32: usize = 8;
const DTYPES: [(&str, usize); 10] = [
    ("bool", 1), ("u8", 1), ("i8", 1), ("i16", 2), ("i32", 4), ("i64", 8),
    ("f16", 2), ("bf16", 2), ("f32", 4), ("f64", 8),
];

#[repr(C)]
struct Size { name: *const c_char, least: i64, most: i64 }

#[repr(C)]
struct Entry { name: *const c_char, dtype: i32, rank: i32, shape: *const i64 }

#[repr(C)]
struct RawTensor { data: *mut c_void, bytes: i64, dtype: i32, rank: i32, shape: *mut i64 }

#[repr(C)]
struct Options {
    abi: i32,
    threads: i32,
    sizes: *const i64,
    weights_path: *const c_char,
    weights: *const c_void,
    weights_bytes: i64,
    memory: *mut c_void,
    memory_bytes: i64,
    cpu: *const c_char,
    message: *mut c_char,
    message_bytes: i64,
}

#[link(name = "digits")]
extern "C" {
    fn digits_abi() -> i32;
    fn digits_text(code: i32) -> *const c_char;
    fn digits_inputs() -> i32;
    fn digits_outputs() -> i32;
    fn digits_sizes() -> i32;
    fn digits_input(number: i32) -> *const Entry;
    fn digits_output(number: i32) -> *const Entry;
    fn digits_size(number: i32) -> *const Size;
    fn digits_create(options: *const Options, context: *mut *mut c_void) -> i32;
    fn digits_destroy(context: *mut c_void);
    fn digits_cpu(context: *const c_void) -> *const c_char;
    fn digits_shapes(context: *mut c_void, given: *const RawTensor, made: *mut RawTensor) -> i32;
    fn digits_run(context: *mut c_void, given: *const RawTensor, made: *mut RawTensor) -> i32;
    fn digits_message(context: *const c_void) -> *const c_char;
}

fn text(pointer: *const c_char) -> String {
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

struct Tensor { dtype: usize, shape: Vec<i64>, data: Vec<u8> }

/// A context; one for each thread that runs at the same time.
struct Model { context: *mut c_void }

impl Model {
    fn new(cpu: Option<&str>) -> Result<Model, Box<dyn Error>> {
        if unsafe { digits_abi() } != ABI {
            return Err("libdigits is of another ABI".into());
        }
        let level = cpu.map(CString::new).transpose()?;
        let mut message = [0u8; 256];
        let options = Options {
            abi: ABI, threads: 1, sizes: null(), weights_path: null(), weights: null(),
            weights_bytes: 0, memory: null_mut(), memory_bytes: 0,
            cpu: level.as_ref().map_or(null(), |name| name.as_ptr()),
            message: message.as_mut_ptr().cast(), message_bytes: message.len() as i64,
        };
        let mut context = null_mut();
        match unsafe { digits_create(&options, &mut context) } {
            0 => Ok(Model { context }),
            code => Err(format!("{}: {}", text(unsafe { digits_text(code) }),
                                text(message.as_ptr().cast())).into()),
        }
    }

    fn run(&mut self, inputs: &mut [Tensor]) -> Result<Vec<Tensor>, Box<dyn Error>> {
        let given: Vec<RawTensor> = inputs.iter_mut().map(raw).collect();
        let mut outputs: Vec<Tensor> = entries(false).iter().map(|entry| Tensor {
            dtype: entry.dtype as usize, shape: vec![0; entry.rank as usize], data: Vec::new(),
        }).collect();
        let mut made: Vec<RawTensor> = outputs.iter_mut().map(raw).collect();
        self.check(unsafe { digits_shapes(self.context, given.as_ptr(), made.as_mut_ptr()) })?;
        for (output, tensor) in outputs.iter_mut().zip(made.iter_mut()) {
            output.data.resize(tensor.bytes as usize, 0);
            tensor.data = output.data.as_mut_ptr().cast();
        }
        self.check(unsafe { digits_run(self.context, given.as_ptr(), made.as_mut_ptr()) })?;
        Ok(outputs)
    }

    fn check(&self, code: i32) -> Result<(), Box<dyn Error>> {
        if code == 0 {
            return Ok(());
        }
        let (kind, said) = unsafe { (digits_text(code), digits_message(self.context)) };
        Err(format!("{}: {}", text(kind), text(said)).into())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { digits_destroy(self.context) }
    }
}

fn raw(tensor: &mut Tensor) -> RawTensor {
    RawTensor {
        data: tensor.data.as_mut_ptr().cast(), bytes: tensor.data.len() as i64,
        dtype: tensor.dtype as i32, rank: tensor.shape.len() as i32,
        shape: tensor.shape.as_mut_ptr(),
    }
}

fn entries(inputs: bool) -> Vec<&'static Entry> {
    let count = unsafe { if inputs { digits_inputs() } else { digits_outputs() } };
    (0..count).map(|at| unsafe {
        &*if inputs { digits_input(at) } else { digits_output(at) }
    }).collect()
}

fn show(kind: &str, entry: &Entry) {
    let sizes: Vec<String> = (0..entry.rank as usize).map(|dim| {
        match unsafe { *entry.shape.add(dim) } {
            COMPUTED => "?".to_string(),
            size if size < 0 => text(unsafe { (*digits_size((-1 - size) as i32)).name }),
            size => size.to_string(),
        }
    }).collect();
    let dtype = DTYPES[entry.dtype as usize].0;
    println!("{kind} {}: {dtype} [{}]", text(entry.name), sizes.join(", "));
}

/// A file is a line, "f32 4 10", and the elements of a float32 [4, 10].
fn read_tensor(path: &str) -> Result<Tensor, Box<dyn Error>> {
    let file = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let end = file.iter().position(|&byte| byte == b'\n').ok_or("no first line")?;
    let mut words = std::str::from_utf8(&file[..end])?.split(' ');
    let name = words.next().unwrap_or("");
    let dtype = DTYPES.iter().position(|found| found.0 == name).ok_or("an unknown dtype")?;
    let shape = words.map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    let data = file[end + 1..].to_vec();
    if data.len() as i64 != shape.iter().product::<i64>() * DTYPES[dtype].1 as i64 {
        return Err(format!("{path}: its sizes and its bytes differ").into());
    }
    Ok(Tensor { dtype, shape, data })
}

/// 0 where the bits are equal; else the largest difference of floats, relative to 1 and above.
fn difference(found: &Tensor, recorded: &Tensor) -> f64 {
    if found.dtype != recorded.dtype || found.shape != recorded.shape {
        return f64::INFINITY;
    }
    if found.data == recorded.data {
        return 0.0;
    }
    if found.dtype != F32 {
        return f64::INFINITY;
    }
    let floats = |tensor: &Tensor| -> Vec<f64> {
        tensor.data.chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()) as f64).collect()
    };
    let apart = |(a, b): (f64, f64)| (a - b).abs() / b.abs().max(1.0);
    floats(found).into_iter().zip(floats(recorded)).map(apart)
        .fold(0.0, |worst, apart| if apart <= worst { worst } else { apart })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = arguments.get(1).ok_or("usage: client FOLDER [LEVEL]")?;
    for at in 0..unsafe { digits_sizes() } {
        let size = unsafe { &*digits_size(at) };
        println!("size {}: {} to {}", text(size.name), size.least, size.most);
    }
    entries(true).iter().for_each(|entry| show("input", entry));
    entries(false).iter().for_each(|entry| show("output", entry));
    let mut model = Model::new(arguments.get(2).map(String::as_str))?;
    println!("code for {}", text(unsafe { digits_cpu(model.context) }));

    let count = entries(true).len();
    let mut inputs = (0..count).map(|at| read_tensor(&format!("{folder}/input{at}.tensor")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut right = true;
    for (at, (entry, found)) in entries(false).iter().zip(model.run(&mut inputs)?).enumerate() {
        let apart = difference(&found, &read_tensor(&format!("{folder}/output{at}.tensor"))?);
        let said = if apart == 0.0 { "equal to the bit".into() } else { format!("{apart:e} apart") };
        println!("{}: {said}", text(entry.name));
        right &= apart <= 1e-4;
    }
    if right { Ok(()) } else { Err("the outputs are others".into()) }
}
