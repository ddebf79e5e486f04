//! Prints `include/niclab.h`: `cargo run -p niclab-user --example header > guest-driver/lib/include/niclab.h`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_root_or_default(root);
    let source = std::path::Path::new(root).join("src");
    let mut parts: Vec<_> = std::fs::read_dir(source.join("capi"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    parts.sort();
    let first = cbindgen::Builder::new().with_config(config).with_src(source.join("capi.rs"));
    parts.into_iter().fold(first, cbindgen::Builder::with_src).generate()?.write(std::io::stdout());
    Ok(())
}
