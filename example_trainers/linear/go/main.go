// Command linear is a linear regression by stochastic gradient descent, as a child of hostcore's trainer "process".
//
// It speaks hostcore.trainer/1: a request a line on standard input, an answer a line on standard output, batches as an
// Arrow IPC stream on a socket. It needs Go's own library alone, and does the same as linear.py beside it:
//
//	prediction = bias + sum of weight[i] * column[i]
//	loss       = mean of (prediction - target)^2 over the rows of a batch
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
)

const protocol = "hostcore.trainer/1"

// A request of the host's.
type request struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// A failure that is told to the host.
type failure struct {
	Code    int               `json:"code"`
	Message string            `json:"message"`
	Data    map[string]string `json:"data,omitempty"`
}

func (f *failure) Error() string { return f.Message }

func invalidSettings(pointer, message string) error {
	return &failure{-32000, message, map[string]string{"kind": "InvalidSettings", "pointer": pointer}}
}

func invalidData(message string) error {
	return &failure{-32000, message, map[string]string{"kind": "InvalidData"}}
}

// state is what a checkpoint holds.
type state struct {
	Weights []float64 `json:"weights"`
	Bias    float64   `json:"bias"`
}

type trainer struct {
	state
	columns  []string
	target   string
	rate     float64
	random   *rand.Rand
	file     *bufio.Reader
	stream   *stream
	prepared map[int64]batch
}

// batch holds the values of each column, in the order of the settings, and of the target.
type batch struct {
	columns [][]float64
	target  []float64
}

func (t *trainer) answer(method string, params json.RawMessage) (any, error) {
	var p struct {
		Settings struct {
			Columns []string `json:"columns"`
			Target  string   `json:"target"`
			Rate    *float64 `json:"learning_rate"`
		} `json:"settings"`
		Run struct {
			Seed int64 `json:"seed"`
		} `json:"run"`
		Batch        int64   `json:"batch"`
		Rows         *int64  `json:"rows"`
		BeginsStream bool    `json:"begins_stream"`
		Batches      []int64 `json:"batches"`
		OutputDir    string  `json:"output_dir"`
		Checkpoint   string  `json:"checkpoint_dir"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, invalidSettings("", err.Error())
	}
	switch method {
	case "initialize":
		t.columns, t.target, t.rate = p.Settings.Columns, p.Settings.Target, 0.1
		if p.Settings.Rate != nil {
			t.rate = *p.Settings.Rate
		}
		if t.target == "" {
			t.target = "target"
		}
		if !(t.rate > 0) {
			return nil, invalidSettings("/learning_rate", fmt.Sprintf("%v is no learning rate", t.rate))
		}
		if len(t.columns) == 0 {
			return nil, invalidSettings("/columns", "names no columns")
		}
		t.random = rand.New(rand.NewSource(p.Run.Seed))
		methods := []string{"validate_step", "test_step", "generate_sample"}
		return map[string]any{"protocol": protocol, "methods": methods, "accumulate": true}, nil
	case "setup":
		return nil, nil
	case "configure":
		t.Weights, t.Bias = make([]float64, len(t.columns)), 0
		for i := range t.Weights {
			t.Weights[i] = t.random.Float64()*0.2 - 0.1
		}
		return nil, nil
	case "prepare_batch":
		if p.Rows == nil {
			return nil, invalidData("this trainer needs a dataset")
		}
		return nil, t.prepare(p.Batch, p.BeginsStream)
	case "train_step":
		return t.train(p.Batches), nil
	case "validate_step", "test_step":
		one := t.prepared[p.Batches[0]]
		delete(t.prepared, p.Batches[0])
		loss := 0.0
		for row := range one.target {
			loss += math.Pow(t.predict(one, row)-one.target[row], 2) / float64(len(one.target))
		}
		return map[string]any{"metrics": map[string]any{"loss": number(loss)}}, nil
	case "generate_sample":
		text := ""
		for i, name := range t.columns {
			text += fmt.Sprintf("%s %v\n", name, t.Weights[i])
		}
		text += fmt.Sprintf("bias %v\n", t.Bias)
		return map[string]any{"weights": len(t.Weights)}, os.WriteFile(filepath.Join(p.OutputDir, "weights.txt"), []byte(text), 0o644)
	case "save_checkpoint":
		text, err := json.Marshal(t.state)
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(p.OutputDir, "weights.json"), text, 0o644)
	case "load_checkpoint":
		text, err := os.ReadFile(filepath.Join(p.Checkpoint, "weights.json"))
		if err != nil {
			return nil, err
		}
		t.state = state{}
		return nil, json.Unmarshal(text, &t.state)
	}
	return nil, &failure{-32601, "there is no method " + method, nil}
}

// prepare reads the batch that follows on the socket.
func (t *trainer) prepare(number int64, beginsStream bool) (err error) {
	if beginsStream {
		if t.stream != nil {
			t.stream.skipEnd()
		}
		if t.stream, err = openStream(t.file); err != nil {
			return err
		}
	}
	values, err := t.stream.next()
	if err != nil {
		return err
	}
	one := batch{}
	for _, name := range t.columns {
		if values[name] == nil {
			return invalidData("there is no column " + name + " of floating-point numbers")
		}
		one.columns = append(one.columns, values[name])
	}
	if one.target = values[t.target]; one.target == nil {
		return invalidData("there is no column " + t.target + " of floating-point numbers")
	}
	t.prepared[number] = one
	return nil
}

// train makes one step down the gradient of the mean loss of the batches.
func (t *trainer) train(numbers []int64) any {
	rows := 0
	for _, number := range numbers {
		rows += len(t.prepared[number].target)
	}
	loss, slopes, ofBias := 0.0, make([]float64, len(t.Weights)), 0.0
	for _, number := range numbers {
		one := t.prepared[number]
		for row := range one.target {
			err := t.predict(one, row) - one.target[row]
			loss += err * err / float64(rows)
			ofBias += 2 * err / float64(rows)
			for i, column := range one.columns {
				slopes[i] += 2 * err * column[row] / float64(rows)
			}
		}
	}
	t.Bias -= t.rate * ofBias
	for i, slope := range slopes {
		t.Weights[i] -= t.rate * slope
	}
	t.prepared = map[int64]batch{} // what was prepared before and not asked for is not needed any more
	return map[string]any{"metrics": map[string]any{"loss": number(loss), "lr": t.rate}}
}

func (t *trainer) predict(one batch, row int) float64 {
	sum := t.Bias
	for i, column := range one.columns {
		sum += t.Weights[i] * column[row]
	}
	return sum
}

// number is a number as the protocol has it: JSON has none for these three.
func number(value float64) any {
	switch {
	case math.IsNaN(value):
		return "NaN"
	case math.IsInf(value, 1):
		return "Infinity"
	case math.IsInf(value, -1):
		return "-Infinity"
	}
	return value
}

func main() {
	fd, err := strconv.Atoi(os.Getenv("HOSTCORE_BATCHES_FD"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostcore starts this program: see the trainer `process`")
		os.Exit(2)
	}
	t := &trainer{file: bufio.NewReaderSize(os.NewFile(uintptr(fd), "batches"), 1<<20), prepared: map[int64]batch{}}
	requests, answers := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil { // the host has closed it: there is nothing more to do
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, "this is no request:", err)
			os.Exit(1)
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": asked.ID}
		if result, err := t.answer(asked.Method, asked.Params); err == nil {
			answer["result"] = result
		} else if told, ok := err.(*failure); ok {
			answer["error"] = told
		} else {
			answer["error"] = failure{-32000, err.Error(), nil}
		}
		if err := answers.Encode(answer); err != nil {
			return
		}
	}
}
