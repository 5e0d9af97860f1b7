//! What users rely on beyond the rows that other participants see.
