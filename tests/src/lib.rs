//! The test kit and the end-to-end tests of UndoLog.
