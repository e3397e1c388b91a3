//! The gRPC wire of UndoLog, package `undolog.v1`, generated from `proto/undolog.proto`.

/// Messages, clients and servers of `undolog.v1`.
#[expect(missing_docs)]
pub mod v1 {
    tonic::include_proto!("undolog.v1");
}

/// The encoded file descriptor set, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/undolog_descriptor.bin"));

/// The name under which the health service says whether calls are welcome, as `/ready` does. The
/// other names say whether the process serves: whoever restarts engines looks at those.
pub const READY: &str = "undolog.ready";
