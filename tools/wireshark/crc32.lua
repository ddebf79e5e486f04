-- CRC-32 as of Ethernet (ISO-HDLC), which ends the frames of several models. Loaded by niclab.lua for their dissectors.

local function step(crc, byte)
    crc = bit.bxor(crc, byte)
    for _ = 1, 8 do
        local carry = bit.band(crc, 1) ~= 0
        crc = bit.rshift(crc, 1)
        if carry then
            crc = bit.bxor(crc, 0xedb88320)
        end
    end
    return crc
end

-- Of the bytes of these ranges, one behind the other: a number of `bit`, which may be negative.
return function(...)
    local crc = bit.bnot(0)
    for _, range in ipairs({ ... }) do
        for i = 0, range:len() - 1 do
            crc = step(crc, range(i, 1):uint())
        end
    end
    return bit.bnot(crc)
end
