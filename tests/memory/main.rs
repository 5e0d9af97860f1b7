//! The engine on a database in memory, where time is virtual: no server, and nothing takes time.

mod basics;
