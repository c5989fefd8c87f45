// Classify digits from Go: the library's functions, which digits.h declares, by cgo, behind a Model.
//
//	export CGO_CFLAGS=-I$PWD/../out CGO_LDFLAGS="-L$PWD/../out -Wl,-rpath,$PWD/../out"
//	go build -o client client.go
//	./client ../out/golden [x86-64-v3]
//
// Memory that the library sees holds addresses, and so is C's: Go's own may not be handed on so.
package main

/*
#cgo LDFLAGS: -ldigits -lm
#include <stdlib.h>
#include "digits.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"
)

var dtypes = []string{"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}
var widths = []int64{1, 1, 1, 2, 4, 8, 2, 2, 4, 8}

// Tensor is an array, row by row, little-endian.
type Tensor struct {
	DType int32
	Shape []int64
	Data  []byte
}

// Model is a context of the library. It runs one call at a time.
type Model struct{ context *C.digits_context }

// failure is the error of a code, with what the library says of it.
func failure(code C.int32_t, message string) error {
	return fmt.Errorf("%s: %s", C.GoString(C.digits_text(code)), message)
}

// NewModel is a context for a level of instructions; "" is the best one.
func NewModel(level string) (*Model, error) {
	const room = 256
	if C.digits_abi() != C.GRAPHC_ABI {
		return nil, errors.New("libdigits is of another ABI than digits.h")
	}
	options := (*C.graphc_options)(C.calloc(1, C.size_t(unsafe.Sizeof(C.graphc_options{}))))
	defer C.free(unsafe.Pointer(options))
	message := (*C.char)(C.calloc(1, room))
	defer C.free(unsafe.Pointer(message))
	options.abi, options.message, options.message_bytes = C.GRAPHC_ABI, message, room
	if level != "" {
		options.cpu = C.CString(level)
		defer C.free(unsafe.Pointer(options.cpu))
	}
	model := new(Model)
	if code := C.digits_create(options, &model.context); code != C.GRAPHC_OK {
		return nil, failure(code, C.GoString(message))
	}
	return model, nil
}

// Close frees the context.
func (model *Model) Close() { C.digits_destroy(model.context) }

func (model *Model) check(code C.int32_t) error {
	if code == C.GRAPHC_OK {
		return nil
	}
	return failure(code, C.GoString(C.digits_message(model.context)))
}

// Run computes the outputs for inputs in their order.
func (model *Model) Run(inputs []Tensor) ([]Tensor, error) {
	if len(inputs) != int(C.digits_inputs()) {
		return nil, fmt.Errorf("%d inputs are given, not %d", len(inputs), int(C.digits_inputs()))
	}
	given, made := newTensors(len(inputs)), newTensors(int(C.digits_outputs()))
	defer freeTensors(given)
	defer freeTensors(made)
	for number, input := range inputs {
		tensor := &given[number]
		tensor.data, tensor.bytes = C.CBytes(input.Data), C.int64_t(len(input.Data))
		tensor.dtype, tensor.rank = C.int32_t(input.DType), C.int32_t(len(input.Shape))
		tensor.shape = newShape(len(input.Shape))
		for dim, size := range input.Shape {
			unsafe.Slice(tensor.shape, len(input.Shape))[dim] = C.int64_t(size)
		}
	}
	for number := range made {
		made[number].shape = newShape(int(C.digits_output(C.int32_t(number)).rank))
	}
	if err := model.check(C.digits_shapes(model.context, &given[0], &made[0])); err != nil {
		return nil, err
	}
	for number := range made {
		made[number].data = C.malloc(C.size_t(made[number].bytes) + 1)
	}
	if err := model.check(C.digits_run(model.context, &given[0], &made[0])); err != nil {
		return nil, err
	}
	outputs := make([]Tensor, len(made))
	for number, tensor := range made {
		shape := make([]int64, tensor.rank)
		for dim := range shape {
			shape[dim] = int64(unsafe.Slice(tensor.shape, tensor.rank)[dim])
		}
		data := C.GoBytes(tensor.data, C.int(tensor.bytes))
		outputs[number] = Tensor{int32(tensor.dtype), shape, data}
	}
	return outputs, nil
}

func newTensors(count int) []C.graphc_tensor {
	size := C.size_t(unsafe.Sizeof(C.graphc_tensor{}))
	return unsafe.Slice((*C.graphc_tensor)(C.calloc(C.size_t(count)+1, size)), count)
}

func newShape(rank int) *C.int64_t { return (*C.int64_t)(C.calloc(C.size_t(rank)+1, 8)) }

func freeTensors(tensors []C.graphc_tensor) {
	for _, tensor := range tensors {
		C.free(tensor.data)
		C.free(unsafe.Pointer(tensor.shape))
	}
	C.free(unsafe.Pointer(&tensors[0]))
}

func printEntry(kind string, entry *C.graphc_entry) {
	sizes := make([]string, entry.rank)
	for dim := range sizes {
		switch size := unsafe.Slice(entry.shape, entry.rank)[dim]; {
		case size == C.GRAPHC_COMPUTED:
			sizes[dim] = "?"
		case size < 0:
			sizes[dim] = C.GoString(C.digits_size(C.int32_t(-1 - size)).name)
		default:
			sizes[dim] = strconv.FormatInt(int64(size), 10)
		}
	}
	shape, name := strings.Join(sizes, ", "), C.GoString(entry.name)
	fmt.Printf("%s %s: %s [%s]\n", kind, name, dtypes[entry.dtype], shape)
}

// readTensor reads a file: a line, "f32 4 10", and the elements of a float32 [4, 10].
func readTensor(folder, kind string, number int) (Tensor, error) {
	path := filepath.Join(folder, fmt.Sprintf("%s%d.tensor", kind, number))
	text, err := os.ReadFile(path)
	if err != nil {
		return Tensor{}, err
	}
	line, data, found := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(line))
	if !found || len(words) == 0 {
		return Tensor{}, fmt.Errorf("%s is no tensor", path)
	}
	for dtype, name := range dtypes {
		if name != words[0] {
			continue
		}
		tensor, count := Tensor{int32(dtype), nil, data}, widths[dtype]
		for _, word := range words[1:] {
			size, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return Tensor{}, err
			}
			tensor.Shape = append(tensor.Shape, size)
			count *= size
		}
		if count != int64(len(data)) {
			return Tensor{}, fmt.Errorf("%s has %d bytes, not %d", path, len(data), count)
		}
		return tensor, nil
	}
	return Tensor{}, fmt.Errorf("%s has the unknown dtype %s", path, words[0])
}

// difference is 0 where the bits are equal; else the largest of floats, relative to 1 and above.
func difference(found, recorded Tensor) float64 {
	if found.DType != recorded.DType || len(found.Data) != len(recorded.Data) {
		return math.Inf(1)
	}
	if bytes.Equal(found.Data, recorded.Data) {
		return 0
	}
	if found.DType != C.GRAPHC_F32 {
		return math.Inf(1)
	}
	largest := 0.0
	for at := 0; at < len(found.Data); at += 4 {
		a := float64(math.Float32frombits(binary.LittleEndian.Uint32(found.Data[at:])))
		b := float64(math.Float32frombits(binary.LittleEndian.Uint32(recorded.Data[at:])))
		largest = math.Max(largest, math.Abs(a-b)/math.Max(1, math.Abs(b)))
	}
	return largest
}

func run(arguments []string) (wrong bool, err error) {
	if len(arguments) < 2 {
		return false, errors.New("usage: client FOLDER [LEVEL]")
	}
	level := ""
	if len(arguments) > 2 {
		level = arguments[2]
	}
	for number := C.int32_t(0); number < C.digits_inputs(); number++ {
		printEntry("input", C.digits_input(number))
	}
	for number := C.int32_t(0); number < C.digits_outputs(); number++ {
		printEntry("output", C.digits_output(number))
	}
	model, err := NewModel(level)
	if err != nil {
		return false, err
	}
	defer model.Close()
	fmt.Printf("code for %s\n", C.GoString(C.digits_cpu(model.context)))
	inputs := make([]Tensor, int(C.digits_inputs()))
	for number := range inputs {
		if inputs[number], err = readTensor(arguments[1], "input", number); err != nil {
			return false, err
		}
	}
	outputs, err := model.Run(inputs)
	if err != nil {
		return false, err
	}
	for number, output := range outputs {
		recorded, err := readTensor(arguments[1], "output", number)
		if err != nil {
			return false, err
		}
		name := C.GoString(C.digits_output(C.int32_t(number)).name)
		apart := difference(output, recorded)
		if apart == 0 {
			fmt.Printf("%s: equal to the bit\n", name)
		} else {
			fmt.Printf("%s: %g apart\n", name, apart)
		}
		wrong = wrong || !(apart <= 1e-4)
	}
	return wrong, nil
}

func main() {
	wrong, err := run(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if wrong || err != nil {
		os.Exit(1)
	}
}
