//! End-to-end tests of the zcached programs.
