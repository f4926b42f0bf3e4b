package main

// What this program needs of Arrow's IPC streams: columns of float32 and float64 without nulls, by name.
//
// The format: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format; its messages are FlatBuffers:
// https://github.com/apache/arrow/blob/main/format/Message.fbs and Schema.fbs, which the numbers of fields are from.
// Programs that need more take a library: github.com/apache/arrow-go.

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	headerSchema      = 1
	headerRecordBatch = 3
	typeNull          = 1
	typeFloatingPoint = 3
	typeBinary        = 4
	typeUtf8          = 5
	typeLargeBinary   = 19
	typeLargeUtf8     = 20
)

// table is a table of a FlatBuffer: the buffer, and where it begins.
type table struct {
	data []byte
	at   uint32
}

// field is where a field is; 0 if it is not set.
func (t table) field(number uint32) uint32 {
	entries := t.at - uint32(int32(binary.LittleEndian.Uint32(t.data[t.at:])))
	place := 4 + 2*number
	if place >= uint32(binary.LittleEndian.Uint16(t.data[entries:])) {
		return 0
	}
	offset := uint32(binary.LittleEndian.Uint16(t.data[entries+place:]))
	if offset == 0 {
		return 0
	}
	return t.at + offset
}

func (t table) follow(at uint32) uint32 { return at + binary.LittleEndian.Uint32(t.data[at:]) }

func (t table) table(number uint32) table { return table{t.data, t.follow(t.field(number))} }

func (t table) byte(number uint32) byte {
	if at := t.field(number); at != 0 {
		return t.data[at]
	}
	return 0
}

func (t table) int16(number uint32) int16 {
	if at := t.field(number); at != 0 {
		return int16(binary.LittleEndian.Uint16(t.data[at:]))
	}
	return 0
}

func (t table) int64(number uint32) int64 {
	if at := t.field(number); at != 0 {
		return int64(binary.LittleEndian.Uint64(t.data[at:]))
	}
	return 0
}

func (t table) string(number uint32) string {
	at := t.follow(t.field(number))
	return string(t.data[at+4 : at+4+binary.LittleEndian.Uint32(t.data[at:])])
}

// vector is where the elements of a vector begin, and how many there are.
func (t table) vector(number uint32) (uint32, uint32) {
	at := t.field(number)
	if at == 0 {
		return 0, 0
	}
	at = t.follow(at)
	return at + 4, binary.LittleEndian.Uint32(t.data[at:])
}

// column is a column of a stream, and the number of its buffers.
type column struct {
	name    string
	bits    int // of a floating-point number; 0: of another type, which is skipped
	buffers int
}

// stream reads the batches of one schema.
type stream struct {
	from    *bufio.Reader
	columns []column
	ended   bool
}

// message reads a message: its header and its body; nil at the end of the stream.
func (s *stream) message() (kind byte, header table, body []byte, err error) {
	var prefix [8]byte
	if _, err = io.ReadFull(s.from, prefix[:]); err != nil {
		return
	}
	size := binary.LittleEndian.Uint32(prefix[4:])
	if binary.LittleEndian.Uint32(prefix[:]) != 0xFFFFFFFF {
		err = errors.New("what is on the socket is no Arrow IPC stream")
		return
	}
	if size == 0 {
		s.ended = true
		err = io.EOF
		return
	}
	metadata := make([]byte, size)
	if _, err = io.ReadFull(s.from, metadata); err != nil {
		return
	}
	root := table{metadata, binary.LittleEndian.Uint32(metadata)}
	body = make([]byte, root.int64(3))
	_, err = io.ReadFull(s.from, body)
	return root.byte(1), root.table(2), body, err
}

// openStream reads the schema that a stream begins with.
func openStream(from *bufio.Reader) (*stream, error) {
	s := &stream{from: from}
	kind, schema, _, err := s.message()
	if err != nil {
		return nil, err
	}
	if kind != headerSchema {
		return nil, fmt.Errorf("a stream begins with a message of kind %d, not with its schema", kind)
	}
	first, count := schema.vector(1)
	for i := uint32(0); i < count; i++ {
		field := table{schema.data, schema.follow(first + 4*i)}
		one := column{name: field.string(0), buffers: 2}
		if _, children := field.vector(5); children != 0 {
			return nil, invalidData("the column " + one.name + " is nested; name others in the job's dataset.columns")
		}
		switch field.byte(2) {
		case typeNull:
			one.buffers = 0
		case typeFloatingPoint:
			one.bits = 16 << field.table(3).int16(0)
		case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8:
			one.buffers = 3 // offsets, too
		}
		s.columns = append(s.columns, one)
	}
	return s, nil
}

// skipEnd reads the end of a stream, which comes before another begins.
func (s *stream) skipEnd() {
	for !s.ended {
		if _, _, _, err := s.message(); err != nil {
			return
		}
	}
}

// next reads a batch: the values of each column of floating-point numbers, by name.
func (s *stream) next() (map[string][]float64, error) {
	kind, header, body, err := s.message()
	if err != nil {
		return nil, err
	}
	if kind != headerRecordBatch {
		return nil, invalidData("a column is dictionary-encoded, which this program does not read")
	}
	rows := int(header.int64(0))
	nodes, _ := header.vector(1)
	buffers, _ := header.vector(2)
	found := map[string][]float64{}
	for i, one := range s.columns {
		nulls := binary.LittleEndian.Uint64(header.data[nodes+uint32(16*i)+8:])
		at := buffers + 16 // the values are behind the bitmap of nulls
		if one.bits == 32 || one.bits == 64 {
			if nulls != 0 {
				return nil, invalidData("the column " + one.name + " has nulls")
			}
			data := body[binary.LittleEndian.Uint64(header.data[at:]):]
			values := make([]float64, rows)
			for row := range values {
				if one.bits == 32 {
					values[row] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*row:])))
				} else {
					values[row] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*row:]))
				}
			}
			found[one.name] = values
		}
		buffers += uint32(16 * one.buffers)
	}
	return found, nil
}
