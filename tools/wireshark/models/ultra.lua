-- ULTRA's packets: FLITs of eight bytes, most significant first, each followed by its CRC-16.
-- Loaded by niclab.lua. Wire format: device/model/src/models/ultra/wire.rs.

local FLIT_BYTES = 10
local WORD_BYTES = 8
local HEAD_FLITS = 2
local MAX_WORDS = 10
local PROTOCOL = 5

local KINDS = {
    [1] = "data",
    [2] = "acknowledge",
    [3] = "credit request",
    [4] = "credit",
    [5] = "credit offer",
}

-- The meaning of the number in the head's last word, by kind.
local NUMBERS = {
    [1] = "packet",
    [2] = "acknowledged packet",
    [3] = "packets sent",
    [4] = "limit",
    [5] = "number",
}

local ultra = Proto("niclab_ultra", "niclab ULTRA packet")

local f = {
    protocol = ProtoField.uint8("niclab_ultra.protocol", "Protocol"),
    destination_node = ProtoField.uint16("niclab_ultra.destination_node", "Destination node"),
    source_node = ProtoField.uint16("niclab_ultra.source_node", "Source node"),
    source_port = ProtoField.uint8("niclab_ultra.source_port", "Source port"),
    flits = ProtoField.uint8("niclab_ultra.flits", "FLITs"),
    version = ProtoField.uint8("niclab_ultra.version", "Version"),
    target_port = ProtoField.uint8("niclab_ultra.target_port", "Target port (TUPID)"),
    kind = ProtoField.uint8("niclab_ultra.kind", "Kind", base.DEC, KINDS, 0xf0),
    interrupt = ProtoField.bool("niclab_ultra.interrupt", "Interrupt the receiver's host", 8, nil, 0x01),
    acknowledge = ProtoField.bool("niclab_ultra.acknowledge", "Acknowledge", 8, nil, 0x02),
    window_open = ProtoField.bool("niclab_ultra.window_open", "Sender holds credit", 8, nil, 0x01),
    connection = ProtoField.uint16("niclab_ultra.connection", "Connection"),
    number = ProtoField.uint32("niclab_ultra.number", "Number"),
    word = ProtoField.uint64("niclab_ultra.word", "Word", base.HEX),
    crc = ProtoField.uint16("niclab_ultra.crc", "CRC", base.HEX),
    crc_ok = ProtoField.bool("niclab_ultra.crc_ok", "CRC is right"),
}
ultra.fields = f

local bad_crc = ProtoExpert.new("niclab_ultra.bad_crc", "Wrong CRC", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new(
    "niclab_ultra.bad_length", "FLITs do not fit the frame", expert.group.MALFORMED, expert.severity.ERROR)
local bad_kind = ProtoExpert.new("niclab_ultra.bad_kind", "Unknown kind", expert.group.PROTOCOL, expert.severity.WARN)
ultra.experts = { bad_crc, bad_length, bad_kind }

-- CRC-16 with the CCITT polynomial, preset to ones (CRC-16/IBM-3740), most significant bit first.
local function check_sequence(range)
    local crc = 0xffff
    for i = 0, range:len() - 1 do
        crc = bit.bxor(crc, bit.lshift(range(i, 1):uint(), 8))
        for _ = 1, 8 do
            local carry = bit.band(crc, 0x8000) ~= 0
            crc = bit.band(bit.lshift(crc, 1), 0xffff)
            if carry then
                crc = bit.bxor(crc, 0x1021)
            end
        end
    end
    return crc
end

-- Adds a FLIT with its check sequence; the caller adds the word's fields.
local function add_flit(tree, buffer, place, title)
    local range = buffer(place * FLIT_BYTES, FLIT_BYTES)
    local word = range(0, WORD_BYTES)
    local flit = tree:add(ultra, range, "FLIT " .. place .. ": " .. title)
    local is_right = check_sequence(word) == range(WORD_BYTES, 2):uint()
    return flit, word, function()
        flit:add(f.crc, range(WORD_BYTES, 2))
        flit:add(f.crc_ok, range(WORD_BYTES, 2), is_right):set_generated()
        if not is_right then
            flit:append_text(" [wrong CRC]")
            flit:add_proto_expert_info(bad_crc)
        end
    end
end

local function add_routing(tree, buffer)
    local flit, word, seal = add_flit(tree, buffer, 0, "routing")
    flit:add(f.protocol, word(0, 1))
    flit:add(f.version, word(1, 1))
    flit:add(f.destination_node, word(2, 2))
    flit:add(f.source_node, word(4, 2))
    flit:add(f.source_port, word(6, 1))
    flit:add(f.flits, word(7, 1))
    seal()
    return word
end

local function add_header(tree, buffer)
    local flit, word, seal = add_flit(tree, buffer, 1, "header")
    local kind = bit.rshift(word(1, 1):uint(), 4)
    flit:add(f.target_port, word(0, 1))
    flit:add(f.kind, word(1, 1))
    if kind == 1 then
        flit:add(f.interrupt, word(1, 1))
        flit:add(f.acknowledge, word(1, 1))
    elseif kind == 3 then
        flit:add(f.window_open, word(1, 1))
    end
    flit:add(f.connection, word(2, 2))
    flit:add(f.number, word(4, 4)):append_text(" (" .. (NUMBERS[kind] or "?") .. ")")
    if not KINDS[kind] then
        flit:add_proto_expert_info(bad_kind)
    end
    seal()
    return word, kind
end

function ultra.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "ULTRA"
    local tree = root:add(ultra, buffer())
    local bytes = buffer:len()
    local count = math.floor(bytes / FLIT_BYTES)
    if count < HEAD_FLITS or count > HEAD_FLITS + MAX_WORDS or bytes % FLIT_BYTES ~= 0 then
        tree:add_proto_expert_info(bad_length)
        return bytes
    end
    local routing = add_routing(tree, buffer)
    local header, kind = add_header(tree, buffer)
    if routing(7, 1):uint() ~= count then
        tree:add_proto_expert_info(bad_length)
    end
    for place = HEAD_FLITS, count - 1 do
        -- The tag is the last two words of a data packet.
        local flit, word, seal = add_flit(tree, buffer, place, place >= count - 2 and "tag" or "payload")
        flit:add(f.word, word)
        seal()
    end
    pinfo.cols.info = string.format(
        "%u:%u -> %u:%u %s, connection %u, %s %u",
        routing(4, 2):uint(), routing(6, 1):uint(), routing(2, 2):uint(), header(0, 1):uint(),
        KINDS[kind] or "unknown kind", header(2, 2):uint(), NUMBERS[kind] or "number", header(4, 4):uint())
    return bytes
end

return { protocol = PROTOCOL, dissector = ultra }
