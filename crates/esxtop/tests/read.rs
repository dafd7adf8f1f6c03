//! The reader on files as ESXi and perfmon write them, and on each kind of damage: what it keeps,
//! and what it says.

use esxtop::{ObjectKind, read};

/// A file of ESXi's: memory and disks that Tandem does not know, text in a column, line ends of
/// Windows, a comma at the end.
const ESXI: &str = concat!(
    r#""(PDH-CSV 4.0) (UTC)(0)","\\esx\Memory\Memory Overcommit (1 Minute Avg)","\\esx\Physical Cpu(_Total)\% Util Time","#,
    r#""\\esx\Group Cpu(28868:Ted)\% Ready","\\esx\Group Memory(28868:Ted)\Memctl?","\\esx\Vcpu(1:a:2:vmx-vcpu-0)\% Ready","#,
    "\r\n",
    r#""05/15/2017 06:49:37","0.00","12.50","1e2","Y","","#,
    "\r\n",
    r#""05/15/2017 06:49:42","0.10"," ","-","N","-0.50","#,
    "\r\n",
);

#[test]
fn files_of_esxi_are_read_with_all_that_tandem_does_not_know() {
    let batch = read(ESXI.as_bytes()).unwrap();
    assert_eq!((batch.host(), batch.zone.as_str(), batch.bias_minutes), (Some("esx"), "UTC", 0));
    assert_eq!(batch.unix_ms, [1_494_830_977_000, 1_494_830_982_000]);
    assert_eq!((batch.series.len(), batch.cut_line), (5, None));
    let numbers =
        |object, instance, counter| batch.find(object, instance, counter).unwrap().numbers.clone();
    assert_eq!(numbers("Memory", None, "Memory Overcommit (1 Minute Avg)"), [Some(0.0), Some(0.1)]);
    assert_eq!(
        numbers("Physical Cpu", Some("_Total"), "% Util Time"),
        [Some(12.5), None],
        "a blank is a gap"
    );
    assert_eq!(
        numbers("Group Cpu", Some("28868:Ted"), "% Ready"),
        [Some(100.0), None],
        "so is a dash"
    );
    assert_eq!(numbers("Vcpu", Some("1:a:2:vmx-vcpu-0"), "% Ready"), [None, Some(-0.5)]);
    let memctl = batch.find("Group Memory", Some("28868:Ted"), "Memctl?").unwrap();
    assert_eq!(
        (memctl.path.kind(), memctl.numbers.as_slice()),
        (ObjectKind::VmMemory, [None, None].as_slice())
    );
    assert_eq!(memctl.texts.values().collect::<Vec<_>>(), ["Y", "N"]);
    assert_eq!(batch.of("Group Cpu", "% Ready").count(), 1);
    assert!(batch.find("Group Cpu", None, "% Ready").is_none());
}

#[test]
fn files_of_perfmon_have_their_own_time_zone_and_fractions() {
    let text = "\u{feff}\"(PDH-CSV 4.0) (GMT Standard Time)(-60)\",\"\\\\M\\% C2 \
        Time\",\"odd\"\n\"10/29/2017 01:59:44.562\",\"88.36\",7";
    let batch = read(format!("{text}\n").as_bytes()).unwrap();
    assert_eq!((batch.zone.as_str(), batch.bias_minutes), ("GMT Standard Time", -60));
    // 00:59:44.562 UTC.
    assert_eq!(batch.unix_ms, [1_509_238_784_562]);
    assert_eq!(batch.find("", None, "% C2 Time").unwrap().numbers, [Some(88.36)]);
    assert_eq!(
        batch.find("", None, "odd").unwrap().numbers,
        [Some(7.0)],
        "a column that is no path keeps its name"
    );
    let cut = read(text.as_bytes()).unwrap();
    assert_eq!(
        (cut.unix_ms.len(), cut.cut_line),
        (0, Some(2)),
        "a number without quotes and line end may be a part of one"
    );
}

#[test]
fn names_that_are_not_utf8_are_read_as_latin_1() {
    let mut data = b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Group Cpu(7:G\xf6tz)\\% Run\"\n".to_vec();
    data.extend(b"\"05/15/2017\n06:49:37\",\"1\"\n");
    let batch = read(&data[..]).unwrap();
    assert_eq!(batch.find("Group Cpu", Some("7:Götz"), "% Run").unwrap().numbers, [Some(1.0)]);
    assert_eq!(batch.unix_ms, [1_494_830_977_000], "a line break between date and time");
}

fn said(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn damage_is_said_with_line_and_column() {
    let header = r#""(PDH-CSV 4.0) (UTC)(0)","\\h\Memory\x","\\h\Group Cpu(1:system)\% Used""#;
    let line = r#""05/15/2017 06:49:37","1","2""#;
    let with = |bad: &str| said(&format!("{header}\n{line}\n{bad}\n{line}\n"));
    assert_eq!(
        with(r#""05/15/2017 06:49:42","1","2x""#),
        r"batch file, line 3, column 3 (\\h\Group Cpu(1:system)\% Used): cannot read the number: seen '2x', allowed a decimal number or nothing; correct the cell, or empty it"
    );
    for no_number in ["nan", "inf", "infinity", "1e999"] {
        assert!(
            with(&format!(r#""05/15/2017 06:49:42","1","{no_number}""#))
                .contains("line 3, column 3"),
            "{no_number}"
        );
    }
    assert_eq!(
        with(r#""05/15/2017","1","2""#),
        "batch file, line 3, column 1: cannot read the time: seen '05/15/2017', allowed MM/DD/YYYY \
            HH:MM:SS; copy the file again, or take the line out"
    );
    let columns = |n| {
        format!(
            "batch file, line 3: cannot read the sample: seen {n} columns, allowed 3 as in the \
                header; copy the file again, or take the line out"
        )
    };
    assert_eq!(with(r#""05/15/2017 06:49:42","1""#), columns(2));
    assert_eq!(with(r#""05/15/2017 06:49:42","1","2","3","4""#), columns(5));
    let quote = |column| {
        format!(
            "batch file, line 3, column {column}: cannot read the field: seen a quote that does \
                not end it, allowed two of them around a field; copy the file again, or take the \
                line out"
        )
    };
    assert_eq!(with(r#""05/15/2017 06:49:42","1"x,"2""#), quote(2));
    assert_eq!(with(r#""05/15/2017 06:49:42","1","2"#), quote(3));
}

#[test]
fn the_last_line_may_be_cut_and_nothing_else_may_be_wrong_with_it() {
    let header = r#""(PDH-CSV 4.0) (UTC)(0)","\\h\Memory\x","\\h\Group Cpu(1:system)\% Used""#;
    let line = r#""05/15/2017 06:49:37","1","2""#;
    let last = |bad: &str| {
        read(format!("{header}\n{line}\n{bad}").as_bytes())
            .map(|b| (b.unix_ms.len(), b.cut_line))
            .map_err(|e| e.to_string())
    };
    for cut in [
        r#""05/15/2017 06:49:42","1""#,
        r#""05/15/2017 06:49:42","1","2"#,
        r#""05/1"#,
        "\"",
        "\0\0\0",
        "\"05/15/2017 06:49:42\"\n\n",
    ] {
        assert_eq!(last(cut), Ok((1, Some(3))), "{cut}");
    }
    assert_eq!(last(line), Ok((2, None)), "whole, though not ended");
    assert_eq!(last(""), Ok((1, None)));
    assert!(last(r#""05/15/2017 06:49:42","1","2x""#).unwrap_err().contains("column 3"));
    assert!(last(r#""05/15/2017 06:49:42","1","2","3""#).unwrap_err().contains("seen 4 columns"));
    assert!(last(r#""05/15/2017 06:49:42","1"x,"2""#).unwrap_err().contains("line 3, column 2"));
}

#[test]
fn what_is_no_batch_file_is_refused_at_its_first_line() {
    assert_eq!(
        said(""),
        "batch file: cannot read it: seen no line at all, allowed a header and samples; give a \
            file that batch mode wrote"
    );
    assert_eq!(said(" \r\n\n"), said(""));
    let header = |seen: &str, line| {
        format!(
            "batch file, line {line}, column 1: cannot read the header: seen '{seen}', allowed \
                '(PDH-CSV 4.0) (zone)(minutes)'; give a file that batch mode wrote"
        )
    };
    assert_eq!(said("\nTime,CPU\n1,2\n"), header("Time", 2));
    for first in [
        "(PDH-CSV 4.0) (UTC)",
        "(PDH-CSV 4.0) (UTC)(x)",
        "(PDH-CSV 4.0) (UTC)(1440)",
        "(PDH-CSV 4.0",
        "(PDH-CSV 4.0) UTC(0)",
    ] {
        assert_eq!(said(&format!("\"{first}\",\"\\\\h\\o\\c\"\n")), header(first, 1));
    }
    assert_eq!(
        said(&"y".repeat(500)),
        header(&"y".repeat(60), 1),
        "what was seen is not shown at any length"
    );
    assert_eq!(said("a\u{1b}[2J\0b"), header("a?[2J?b", 1), "nor are marks that a terminal obeys");
    assert!(said("\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\o").contains("line 1, column 2"));
}
