// Package deps holds the module's requirements until the code imports them.
package deps

import (
	_ "github.com/apache/arrow/go/v17/arrow"
	_ "github.com/apache/arrow/go/v17/arrow/array"
	_ "github.com/apache/arrow/go/v17/arrow/ipc"
	_ "github.com/apache/arrow/go/v17/arrow/memory"
	_ "github.com/apache/arrow/go/v17/parquet"
	_ "github.com/apache/arrow/go/v17/parquet/compress"
	_ "github.com/apache/arrow/go/v17/parquet/file"
	_ "github.com/apache/arrow/go/v17/parquet/pqarrow"
	_ "github.com/dlclark/regexp2"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "github.com/spf13/viper"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/vbauerster/mpb/v8/decor"
	_ "github.com/yalue/onnxruntime_go"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/unicode/norm"
	_ "google.golang.org/protobuf/proto"
)
