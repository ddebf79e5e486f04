-- Frames of the Mailbox card: a header of two words, the words of the letter (a message), and a CRC-32 of all these. An
-- acknowledgement is a frame without words, whose header has the number of the acknowledged letter.
-- Loaded by niclab.lua. Wire format: device/model/src/models/mailbox/wire.rs.

-- niclab.lua passes a table of shared functions to this file.
local check_sequence = (...).crc32

local PROTOCOL = 6
local WORD_BYTES = 8
local HEADER_BYTES = 16
local CHECK_BYTES = 4
local KINDS = { [1] = "letter", [2] = "acknowledgement" }

local mailbox = Proto("niclab_mailbox", "niclab Mailbox frame")

local f = {
    protocol = ProtoField.uint8("niclab_mailbox.protocol", "Protocol"),
    kind = ProtoField.uint8("niclab_mailbox.kind", "Kind", base.DEC, KINDS, 0xf0),
    interrupt = ProtoField.bool("niclab_mailbox.interrupt", "Interrupt the receiver's host", 8, nil, 0x01),
    acknowledge = ProtoField.bool(
        "niclab_mailbox.acknowledge", "Notify the sender's program of the acknowledgement", 8, nil, 0x02),
    source_port = ProtoField.uint8("niclab_mailbox.source_port", "Source port"),
    target_port = ProtoField.uint8("niclab_mailbox.target_port", "Target port"),
    destination_node = ProtoField.uint16("niclab_mailbox.destination_node", "Destination node"),
    source_node = ProtoField.uint16("niclab_mailbox.source_node", "Source node"),
    number = ProtoField.uint64("niclab_mailbox.number", "Number of the letter"),
    word = ProtoField.uint64("niclab_mailbox.word", "Word", base.HEX),
    check = ProtoField.uint32("niclab_mailbox.check", "CRC-32", base.HEX),
    check_ok = ProtoField.bool("niclab_mailbox.check_ok", "CRC-32 is right"),
}
mailbox.fields = f

local bad_check = ProtoExpert.new(
    "niclab_mailbox.bad_check", "Wrong CRC-32", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new(
    "niclab_mailbox.bad_length", "Not a header, whole words and a CRC-32", expert.group.MALFORMED,
    expert.severity.ERROR)
mailbox.experts = { bad_check, bad_length }

function mailbox.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "Mailbox"
    local tree = root:add(mailbox, buffer())
    local bytes = buffer:len()
    local covered_bytes = bytes - CHECK_BYTES
    if covered_bytes < HEADER_BYTES or covered_bytes % WORD_BYTES ~= 0 then
        tree:add_proto_expert_info(bad_length)
        return bytes
    end
    local kind = bit.rshift(buffer(1, 1):uint(), 4)
    tree:add(f.protocol, buffer(0, 1))
    tree:add(f.kind, buffer(1, 1))
    if kind == 1 then
        tree:add(f.interrupt, buffer(1, 1))
        tree:add(f.acknowledge, buffer(1, 1))
    end
    tree:add(f.source_port, buffer(2, 1))
    tree:add(f.target_port, buffer(3, 1))
    tree:add(f.destination_node, buffer(4, 2))
    tree:add(f.source_node, buffer(6, 2))
    tree:add(f.number, buffer(8, 8))
    for offset = HEADER_BYTES, covered_bytes - WORD_BYTES, WORD_BYTES do
        tree:add(f.word, buffer(offset, WORD_BYTES))
    end
    local check = buffer(covered_bytes, CHECK_BYTES)
    -- Functions of `bit` return signed numbers, so both sides must be converted.
    local is_right = bit.tobit(check_sequence(buffer(0, covered_bytes))) == bit.tobit(check:uint())
    tree:add(f.check, check)
    tree:add(f.check_ok, check, is_right):set_generated()
    if not is_right then
        tree:add_proto_expert_info(bad_check)
    end
    pinfo.cols.info = string.format(
        "%u:%u -> %u:%u %s %s", buffer(6, 2):uint(), buffer(2, 1):uint(), buffer(4, 2):uint(), buffer(3, 1):uint(),
        KINDS[kind] or "unknown kind", tostring(buffer(8, 8):uint64()))
    return bytes
end

return { protocol = PROTOCOL, dissector = mailbox }
