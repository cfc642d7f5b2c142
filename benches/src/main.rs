//! `cargo xtask bench NAME`: see `zc_bench`.

fn main() -> anyhow::Result<()> {
    zc_bench::main()
}
