//! Everything that needs a database: one binary, one server, a database for each test.

mod smoke;
