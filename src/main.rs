//! The `sealroot` command: parse, call, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    sealroot::cli::main()
}
