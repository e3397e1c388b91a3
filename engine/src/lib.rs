//! The gRPC engine of UndoLog: records effects and enqueues work.
