//! Prints `include/niclab.h`: `cargo run -p niclab-user --example header > guest-driver/lib/include/niclab.h`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_root_or_default(root);
    let source = std::path::Path::new(root).join("src");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(source.join("capi.rs"))
        .with_src(source.join("capi/region.rs"))
        .with_src(source.join("capi/matching.rs"))
        .with_src(source.join("capi/posts.rs"))
        .with_src(source.join("capi/channels.rs"))
        .generate()?;
    bindings.write(std::io::stdout());
    Ok(())
}
