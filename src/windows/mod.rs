//! Windows' names and their rules, limits and states: facts as code.
