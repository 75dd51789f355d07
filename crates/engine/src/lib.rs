//! Shared-memory, log and transaction engine behind Plait.
