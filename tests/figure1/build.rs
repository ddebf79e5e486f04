//! Compiles Figure 1, and a copy for each wrong reading that tests must find.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The wrong readings: the printed text, and the wrong one.
const WRONG: [(&str, &str); 19] = [
    ("& me->dont_ignore_bits) continue;", "& ~me->dont_ignore_bits) continue;"),
    ("me->match_id_nid != ANY && ", ""),
    ("me->match_id_pid != ANY && ", ""),
    ("&& me->match_id_nid != src_nid", "&& me->match_id_nid == src_nid"),
    ("if (!md_valid(current) || !md->threshold) continue;", "if (!md_valid(current)) continue;"),
    ("if (!md_valid(current) || !md->threshold) continue;", "if (!md->threshold) continue;"),
    ("hdr->op == PTL_MSG_PUT && !respond_to_puts(md)", "hdr->op == PTL_MSG_PUT && !respond_to_gets(md)"),
    ("else if (hdr->op == PTL_MSG_GET && !respond_to_gets(md)) continue;", ""),
    ("if (*offset >= md_len) *offset = md_len;", ""),
    ("if ( use_remote_offset(md)) {", "if ( !use_remote_offset(md)) {"),
    ("if ( use_max_size(md) && !allow_truncation(md)) {", "if ( use_max_size(md)) {"),
    ("if (remain < max_size) continue;", "if (remain <= max_size) continue;"),
    ("if (hdr->length <= remain)", "if (hdr->length < remain)"),
    (
        "else if ( allow_truncation(md)) *mlength = remain;",
        "else if ( allow_truncation(md)) *mlength = hdr->length;",
    ),
    ("memd->local_offset += bytes;", "memd->local_offset += 0 * bytes;"),
    ("--md->threshold == 0", "md->threshold-- == 0"),
    (
        "return is_managed_here && use_max_size(md) && !allow_truncation(md)",
        "return is_managed_here && use_max_size(md)",
    ),
    ("return is_managed_here && use_max_size(md)", "return use_max_size(md)"),
    ("*link = found->next;", "(void)0;"),
];

/// The signature of each in Rust.
const SIGNATURE: &str = "fn NAME(\
    entries: *const Entry, entry_count: usize, messages: *const Message, message_count: usize, \
    consumes: c_int, results: *mut Answer) -> c_int;";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR: cargo sets it")?);
    let source = fs::read_to_string(folder.join("figure1.c"))?;
    let (mut declared, mut listed) = (String::new(), String::new());
    for (number, wrong) in [None].into_iter().chain(WRONG.map(Some)).enumerate() {
        let (text, name) = match wrong {
            None => (source.clone(), "as printed".to_owned()),
            Some((printed, _)) if source.matches(printed).count() != 1 => {
                return Err(format!("{printed:?} must occur exactly once in figure1.c").into());
            }
            Some((printed, read)) => {
                (source.replacen(printed, read, 1), format!("{printed} read as {read:?}"))
            }
        };
        let path = out.join(format!("figure1_{number}.c"));
        fs::write(&path, text)?;
        // Each reading has separate symbol names.
        let own = format!("figure1_run_{number}");
        let mut build = cc::Build::new();
        build.file(path).include(folder).std("c99").warnings(false);
        build.define("match", &*format!("match_{number}")).define("figure1_run", &*own);
        build.try_compile(&format!("figure1_{number}"))?;
        declared += &format!("unsafe extern \"C\" {{\n    {SIGNATURE}\n}}\n").replace("NAME", &own);
        listed += &format!("    ({name:?}, {own}),\n");
    }
    let count = WRONG.len() + 1;
    let code = format!(
        "{declared}\n/// Figure 1 as printed, and wrong readings.\nconst READINGS: [(&str, Run); {count}] \
            = [\n{listed}];\n"
    );
    fs::write(out.join("readings.rs"), code)?;
    Ok(())
}
