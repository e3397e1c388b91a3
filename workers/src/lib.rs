//! The workers of UndoLog: compensations, sweeps and queue upkeep.
